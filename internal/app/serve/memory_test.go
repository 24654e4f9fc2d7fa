package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// table is a model that takes the rows of a table: a list of any number of values, and a text.
func table(t testing.TB) Model {
	t.Helper()
	rows := []convert.Feature{
		{Name: "list", Kind: convert.KindNumber, DType: "int64", Shape: convert.Shape{-1}, Role: convert.RoleInput, Columns: []string{"list"}},
		{Name: "words", Kind: convert.KindText, DType: "int64", Shape: convert.Shape{-1}, Role: convert.RoleInput, Columns: []string{"note"}, MaxLength: 4},
	}
	specs := []dataset.Spec{{Name: "list", DType: dataset.Int64, Shape: []int{-1}}, {Name: "words", DType: dataset.Int64, Shape: []int{-1}}}
	m := features(t)
	m.Name = "table"
	m.Features = &Features{Model: seen{of: []string{"list", "words"}}, Layout: dense.Config{Features: specs, Labels: dataset.LabelsNone}, Specs: specs,
		Rows: rows, Tokenizer: texts(t, textModel{}).Texts.Tokenizer}
	return m
}

// allocated returns the bytes that a function allocates in all, which are more than it has at any time.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemoryOfRequests holds that what a request allocates is no more than some times its body, whatever is
// in it. What it has at a time is less: numbers that JSON's decoder returns one by one are most of the
// rest.
func TestMemoryOfRequests(t *testing.T) {
	const size = 512 << 10
	s := start(t, config(), texts(t, textModel{}), features(t), table(t))
	fill := func(begin, repeated, end string) string {
		return begin + strings.Repeat(repeated, size/len(repeated)) + end
	}
	keys := func(begin, value, end string) string {
		var b strings.Builder
		b.WriteString(begin)
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, `"%x":%s,`, i, value)
		}
		return b.String() + end
	}
	for _, tt := range []struct{ name, path, body, want string }{

		{"a column of ones", "words:predict", fill(`{"inputs":{"a":[`, "1,", `1]}}`), `example 1 has the field \"a\"`},
		{"a column of texts", "words:predict", fill(`{"inputs":{"text":[`, `"a",`, `"a"]}}`), "more than 1024 examples given; expected 1 to 1024"},
		{"columns", "words:predict", fill(`{"inputs":[`, `"a",`, `"a"]}`), "more than 1024 examples given"},
		{"rows", "numbers:predict", fill(`{"instances":[`, "1,", `1]}`), "more than 1024 examples given"},
		{"empty rows", "numbers:classify", fill(`{"examples":[`, "{},", `{}]}`), "more than 1024 examples given"},
		{"texts", "words:answer", fill(`{"texts":[`, `"a",`, `"a"]}`), "more than 1024 examples given"},
		{"lists twice", "words:answer", fill(`{`, `"texts":["a"],`, `"texts":["a"]}`), `"answers":[`},
		{"a long text", "words:answer", fill(`{"text":"`, "a ", `"}`), `"truncated":true`},
		{"a text of marks", "words:answer", fill(`{"text":"`, "!", `"}`), `"truncated":true`},
		{"a pair", "words:answer", fill(`{"text":"a","text_pair":"`, "! ", `"}`), `"truncated":true`},
		{"a text of spaces", "words:answer", fill(`{"text":"`, " ", `"}`), "the text is empty"},
		{"a text of another alphabet", "words:answer", fill(`{"text":"`, "ж ", `"}`), `"truncated":true`},
		{"escapes", "words:answer", fill(`{"text":"`, `\u0061`, `"}`), `"label"`},
		{"tokens", "words:predict", fill(`{"instances":[{"input_ids":[`, "1,", `1],"attention_mask":[1],"token_type_ids":[1]}]}`), "expected the same number of each"},
		{"values", "numbers:predict", fill(`{"instances":[{"y":1,"x":[[1,1],[`, "1,", `1]]}]}`), "has lists of different lengths"},
		{"values on a closed axis", "numbers:predict", fill(`{"instances":[{"y":1,"x":[[`, "1,", `1]]}]}`), "expected [-1 2]"},
		{"values on an open axis", "numbers:predict", fill(`{"instances":[{"y":1,"x":[`, "[1,1],", `[1,1]]}]}`), `"predictions":[`},
		{"lists", "numbers:predict", fill(`{"instances":[{"y":1,"x":[`, "[],", `[]]}]}`), "expected [-1 2]"},
		{"a number", "numbers:predict", fill(`{"instances":[{"x":[[1,2]],"y":`, "1", `}]}`), "expected values of int32"},
		{"a fraction", "numbers:predict", fill(`{"instances":[{"y":1,"x":[[1,1.`, "1", `]]}]}`), `"predictions":[`},
		{"base64", "numbers:predict", fill(`{"instances":[{"y":1,"x":{"b64":"`, "AAAA", `"}}]}`), `"predictions":[`},
		{"nested lists", "words:predict", fill(`{"instances":`, "[", ""), "exceeded max depth"},
		{"nested objects", "words:predict", fill(`{"instances":`, `{"a":`, ""), "exceeded max depth"},
		{"a name", "words:answer", fill(`{"`, "a", `":1}`), "unknown field"},
		{"a name that is skipped", "words:predict", fill(`{"`, "a", `":1}`), "is missing"},
		{"names that are skipped", "words:predict", keys("{", "1", `"instances":["a"]}`), `"predictions":[`},
		{"names of an example", "words:predict", keys(`{"instances":[{`, "1", `"text":"a"}]}`), "example 1 has the field"},
		{"names of columns", "numbers:predict", keys(`{"inputs":{`, "[1]", `"x":[1]}}`), "example 1 has the field"},
		{"names of a value", "numbers:predict", keys(`{"instances":[{"y":1,"x":{`, "1", `"b64":""}}]}`), "expected numbers, or an object with"},
		{"signatures", "words:predict", fill(`{`, `"signature_name":"",`, `"instances":["a"]}`), `"predictions":[`},
		{"a list of a row", "table:answer", fill(`{"examples":[{"note":"a","list":[`, "1,", `1]}]}`), `as feature \"list\" has`},
		{"texts in a list of a row", "table:answer", fill(`{"examples":[{"note":"a","list":[`, `"1",`, `"a"]}]}`), `expected`},
		{"a list as text", "table:answer", fill(`{"examples":[{"note":"a","list":"`, "1 ", `1"}]}`), `as feature \"list\" has`},
		{"lists in a row", "table:answer", fill(`{"examples":[{"note":"a","list":[`, "[1],", `[1]]}]}`), `expected`},
		{"a text of a row", "table:answer", fill(`{"examples":[{"list":[1],"note":"`, "! ", `"}]}`), `as feature \"list\" has`},
	} {
		status, got := 0, ""
		took := allocated(func() { status, got = ask(s, "POST", "/v1/models/"+tt.path, tt.body) })
		if !strings.Contains(got, tt.want) || len(got) > 4096 && status != http.StatusOK {
			t.Errorf("%s: status %d, %.200s; expected %s", tt.name, status, got, tt.want)
		}
		times := int64(48)
		if strings.HasPrefix(tt.path, "table:") {
			times = 128
		}
		if took > times*size {
			t.Errorf("%s: %d bytes were allocated, %d times the body", tt.name, took, took/size)
		}
	}
}

// left returns what is left of the budget.
func (s *Server) left() int64 {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	return s.bodies.left
}

// pipes is a listener of connections within the process, whose time is that of a test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestStalled holds that a request of which nothing arrives any more is ended, and gives back what it had.
func TestStalled(t *testing.T) {
	for name, tt := range map[string]struct{ pause, want time.Duration }{
		"silent": {time.Hour, stallTimeout}, "slow": {stallTimeout - time.Second, readTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New([]Model{texts(t, textModel{})}, config())
			if err != nil {
				t.Fatal(err)
			}
			on, all := make(pipes), s.left()
			ctx, stop := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			ended.Go(func() { s.Serve(ctx, on, Listen{StopTimeout: time.Minute}) })
			client, server := net.Pipe()
			on <- server
			io.WriteString(client, "POST /v1/models/words:answer HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n")
			begin := time.Now()
			ended.Go(func() {
				for _, err := client.Write([]byte("a")); err == nil && ctx.Err() == nil; _, err = client.Write([]byte("a")) {
					select {
					case <-time.After(tt.pause):
					case <-ctx.Done():
					}
				}
			})
			synctest.Wait()
			if taken := all - s.left(); taken != firstBodyBytes {
				t.Errorf("%s: a request that sent a byte has %d of the budget", name, taken)
			}
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if took := time.Since(begin); err != nil || answer.StatusCode != http.StatusRequestTimeout || took != tt.want {
				t.Errorf("%s: %v, %v after %v; expected the status 408 after %v", name, answer, err, took, tt.want)
			}
			client.Close()
			stop()
			if ended.Wait(); s.left() != all {
				t.Errorf("%s: %d bytes of the budget are left, of %d", name, s.left(), all)
			}
		})
	}
}

// TestBodies holds that the bodies in progress have no more memory together than they may have, that the
// server says so to others without reading their bodies, and that all is given back.
func TestBodies(t *testing.T) {
	const clients, size, fit = 120, 1 << 20, 4
	c := config()
	c.MaxBodyBytes, c.MaxBodiesBytes = size, fit*size
	s := start(t, c, texts(t, textModel{}))
	on := httptest.NewServer(s)
	defer on.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var refused atomic.Int64
	var open [clients]net.Conn
	var done sync.WaitGroup
	for i := range open {
		client, err := net.Dial("tcp", on.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open[i] = client
		done.Go(func() {
			fmt.Fprintf(client, "POST /v1/models/words:answer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, make([]byte, size-1))
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err == nil && answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "" {
				refused.Add(1)
			}
		})
	}
	for refused.Load() < clients-fit || s.left() != (fit-clients+refused.Load())*size {
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if taken := int64(after.HeapAlloc) - int64(before.HeapAlloc); taken > 2*fit*size+clients*(128<<10) {
		t.Errorf("%d bytes are in use for %d bytes of requests", taken, fit*size)
	}
	for _, client := range open {
		client.Close()
	}
	done.Wait()
	for s.left() != fit*size {
		time.Sleep(time.Millisecond)
	}
	s.bodies.give(1 - s.left())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/models/words:answer", iotest.ErrReader(errors.New("the body is read"))))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, %s, without room for a body", w.Code, w.Body)
	}
}

// TestHalfClosed holds that a client that only ends what it sends gets its answer, and that the examples of
// one that is gone, or broke its connection, leave the queue.
func TestHalfClosed(t *testing.T) {
	m := textModel{calls: make(chan []text.Encoding, 10), hold: make(chan struct{})}
	model := texts(t, m)
	s, err := New([]Model{model}, config())
	if err != nil {
		t.Fatal(err)
	}
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { s.Serve(ctx, on, Listen{StopTimeout: time.Minute}) })
	ask := func() *net.TCPConn {
		client, err := net.Dial("tcp", on.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(client, "POST /v1/models/words:answer HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"text\": \"a\"}")
		return client.(*net.TCPConn)
	}
	waiting := func(n int) {
		for s.models["words"].batcher.waiting() != n {
			time.Sleep(time.Millisecond)
		}
	}
	first := ask()
	<-m.calls
	half := ask()
	waiting(1)
	half.CloseWrite()
	gone, broken := ask(), ask()
	waiting(3)
	gone.Close()
	broken.SetLinger(0)
	broken.Close()
	waiting(1)
	close(m.hold)
	for _, client := range []*net.TCPConn{first, half} {
		from := bufio.NewReader(client)
		answer, err := http.ReadResponse(from, nil)
		for err == nil && answer.StatusCode == http.StatusContinue {
			answer, err = http.ReadResponse(from, nil)
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%v, %v; expected an answer", answer, err)
		}
		client.Close()
	}
	stop()
	ended.Wait()
}

// TestImagesWait holds that an image is not decoded before there is room for its pixels.
func TestImagesWait(t *testing.T) {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	specs := []dataset.Spec{{Name: "photo", DType: dataset.Uint8, Shape: []int{1, 1, 1}}}
	m := features(t)
	m.Features = &Features{Model: seen{of: []string{"photo"}}, Layout: dense.Config{Features: specs, Labels: dataset.LabelsNone}, Specs: specs,
		Rows: []convert.Feature{{Name: "photo", Kind: convert.KindImage, DType: "uint8", Shape: convert.Shape{1, 1, 1}, Role: convert.RoleInput, Columns: []string{"photo"}, Resize: "bilinear", Encoding: "raw"}}}
	m.Outputs, m.Renderer = m.Outputs[:1], nil
	var err error
	if m.Renderer, err = predict.NewRenderer("", []predict.OutputSpec{{Name: "photo", Kind: predict.ManyValues}}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := New([]Model{m}, config())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.images.free.Acquire(t.Context(), s.images.most-300*200*pixelBytes+1)
		answered := false
		go func() {
			status, got := ask(s, "POST", "/v1/models/numbers:answer", fmt.Sprintf(`{"examples": [{"b64": %q}]}`, base64.StdEncoding.EncodeToString(file.Bytes())))
			if answered = true; status != http.StatusOK {
				t.Errorf("status %d, %s", status, got)
			}
		}()
		if synctest.Wait(); answered {
			t.Error("an image was decoded without room for it")
		}
		s.images.free.Release(1)
		if synctest.Wait(); !answered {
			t.Error("an image was not decoded when there was room for it")
		}
	})
}

// TestConnections holds that connections beyond the most wait until one of them ends.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config()
		c.MaxConnections = 1
		s, err := New([]Model{texts(t, textModel{})}, c)
		if err != nil {
			t.Fatal(err)
		}
		on := make(pipes, 2)
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { s.Serve(ctx, on, Listen{StopTimeout: time.Minute}) })
		first, server := net.Pipe()
		on <- server
		second, server := net.Pipe()
		on <- server
		if synctest.Wait(); len(on) != 1 {
			t.Errorf("%d connections wait, expected one", len(on))
		}
		first.Close()
		if synctest.Wait(); len(on) != 0 {
			t.Error("the second connection waits although the first one has ended")
		}
		second.Close()
		stop()
		ended.Wait()
	})
}
