package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// errBusy means that the requests in progress have as much memory as they may have together.
var errBusy = errors.New("the server has too many bytes of requests in progress; try again later")

// budget is the bytes that all requests in progress may have. A request takes as much as it has sent, and
// no more, and keeps it until it is answered, because what waits in the queue is made of it.
type budget struct {
	mu   sync.Mutex
	left int64 // may be less than 0, because an answer takes what it needs
}

// take takes n bytes of a request that needs most bytes more, if there are as many.
func (b *budget) take(n, most int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < most {
		return false
	}
	b.left -= n
	return true
}

// give gives bytes back. Fewer than 0 are taken.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

// firstBodyBytes is the first memory for a body, which doubles as the body arrives.
const firstBodyBytes = 4 << 10

// body reads the body of a request as it arrives. It adds what it took of the budget to held.
func (s *Server) body(w http.ResponseWriter, r *http.Request, held *int64) ([]byte, error) {
	most := s.MaxBodyBytes
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	// One byte more: the body's end, or what is too much.
	from, end := io.LimitReader(r.Body, most+1), time.Now().Add(readTimeout)
	connection := http.NewResponseController(w)
	var data []byte
	for {
		if len(data) == cap(data) {
			size := min(max(firstBodyBytes, 2*int64(cap(data))), most+1)
			need := min(size, most) - *held
			if !s.bodies.take(need, max(need, r.ContentLength-*held)) {
				return nil, errBusy
			}
			*held += need
			data = append(make([]byte, 0, size), data...)
		}
		connection.SetReadDeadline(earlier(end, time.Now().Add(stallTimeout)))
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > most:
			return nil, &http.MaxBytesError{Limit: most}
		case errors.Is(err, io.EOF):
			connection.SetReadDeadline(time.Time{})
			return data, nil
		case err != nil:
			return nil, notRead(err)
		}
	}
}

// notRead returns the error of a request whose body cannot be read.
func notRead(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // the client is gone
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &statusError{http.StatusRequestTimeout, fmt.Sprintf("the request did not arrive within %v, or nothing of it did for %v", readTimeout, stallTimeout)}
	}
	return badf("the request cannot be read: %v", err)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// mostDiscarded is how much of a request that is refused is read all the same.
const mostDiscarded = 256 << 20

// discard reads the rest of a request that was answered before it was read, up to a limit: a client that is
// still writing would lose its connection before it reads the answer. One that waits for leave to write is
// not given it.
func discard(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	connection := http.NewResponseController(w)
	connection.Flush()
	connection.SetReadDeadline(time.Now().Add(readTimeout))
	io.CopyN(io.Discard, r.Body, mostDiscarded) // it is refused in any case
}
