package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/internal/fault"
)

// protocol is the first thing that both sides say. Its number changes with what
// is said afterwards.
const (
	protocolName = "gorbit worker "
	protocol     = protocolName + "2"
)

const (
	// maxLine bounds a message, with its newline.
	maxLine = 64 << 10
	// maxTasks bounds a cluster, so that its addresses fit a message.
	maxTasks = 1024
	// maxThreads and maxDevices are more than any machine has.
	maxThreads = 1 << 14
	maxDevices = 256
	// maxTail bounds the lines of log that a failed worker sends.
	maxTail = 20
)

// message is one line: an object with exactly one of these.
type message struct {
	Hello    *hello    `json:"hello,omitempty"`
	Busy     *busy     `json:"busy,omitempty"`
	Reserve  *reserve  `json:"reserve,omitempty"`
	Reserved *reserved `json:"reserved,omitempty"`
	Start    *start    `json:"start,omitempty"`
	Started  *started  `json:"started,omitempty"`
	Beat     *beat     `json:"beat,omitempty"`
	Failed   *failed   `json:"failed,omitempty"`
	Bye      *bye      `json:"bye,omitempty"`
}

// hello is the first message of both sides. A chief gives the session's timeout,
// a worker all but that.
type hello struct {
	Protocol      string `json:"protocol"`
	Gorbit        string `json:"gorbit"`
	TensorFlow    string `json:"tensorflow"`
	TimeoutMillis int64  `json:"timeout_ms,omitempty"`
	Instructions  string `json:"instructions,omitempty"`
	BF16          bool   `json:"bf16,omitempty"`
	NoBF16        string `json:"no_bf16,omitempty"`
	Devices       string `json:"devices,omitempty"`
	PID           int    `json:"pid,omitempty"`
	Cores         int    `json:"cores,omitempty"`
}

func (h *hello) timeout() time.Duration { return time.Duration(h.TimeoutMillis) * time.Millisecond }

// busy is the answer to a second chief.
type busy struct {
	Peer  string    `json:"peer"`
	Since time.Time `json:"since"`
}

// reserve asks for a child with a port. The supervisor adds where and for how long a
// silence.
type reserve struct {
	NoOneDNN      bool   `json:"no_onednn,omitempty"`
	Host          string `json:"host,omitempty"`
	TimeoutMillis int64  `json:"timeout_ms,omitempty"`
}

// reserved is the port of TensorFlow's server to be.
type reserved struct {
	Port int `json:"port"`
}

// start has the child start TensorFlow's server. The supervisor adds the devices.
type start struct {
	Cluster        []string `json:"cluster"`
	Task           int      `json:"task"`
	IntraOpThreads int      `json:"intra_op_threads,omitempty"`
	InterOpThreads int      `json:"inter_op_threads,omitempty"`
	Devices        string   `json:"devices,omitempty"`
}

// started names the devices of a running server.
type started struct {
	Devices []string `json:"devices"`
}

// beat says that the sender is alive, and in one from a worker, what its child
// uses.
type beat struct {
	RSS       int64 `json:"rss,omitempty"`
	PeakRSS   int64 `json:"peak_rss,omitempty"`
	CPUMillis int64 `json:"cpu_ms,omitempty"`
}

// failed ends a session from the worker's side.
type failed struct {
	Message string `json:"message"`
	// Class is the error's, of package fault; "" is fault.Failed.
	Class fault.Class `json:"class,omitempty"`
	Final bool        `json:"final,omitempty"`
	Tail  []string    `json:"tail,omitempty"`
}

// failedBy is what a worker tells of an error.
func failedBy(err error) *failed {
	f := &failed{Message: clip(err.Error())}
	// One that was stopped has saved nothing, and is a failure to its chief.
	if class := fault.Of(err); class == fault.Damaged || class == fault.Usage {
		f.Class = class
	}
	return f
}

// err is the error that a chief makes of it.
func (f *failed) err() *FailedError {
	e := &FailedError{Message: f.Message, Class: fault.Failed, Final: f.Final, Tail: f.Tail}
	if f.Class == fault.Damaged || f.Class == fault.Usage {
		e.Class = f.Class
	}
	return e
}

// bye ends a session from the chief's side, and is the worker's answer once its
// child is gone.
type bye struct {
	// Done says that the run is at its end, too.
	Done bool `json:"done,omitempty"`
}

// check reports what no peer of this protocol would send.
func (m message) check() error {
	n := 0
	for _, there := range []bool{
		m.Hello != nil, m.Busy != nil, m.Reserve != nil, m.Reserved != nil, m.Start != nil,
		m.Started != nil, m.Beat != nil, m.Failed != nil, m.Bye != nil,
	} {
		if there {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d known messages in one line", n)
	}
	switch {
	case m.Hello != nil:
		return m.Hello.check()
	case m.Reserve != nil:
		return m.Reserve.check()
	case m.Reserved != nil:
		if m.Reserved.Port < 1 || m.Reserved.Port > 65535 {
			return fmt.Errorf("port %d", m.Reserved.Port)
		}
	case m.Start != nil:
		return m.Start.check()
	case m.Started != nil:
		if n := len(m.Started.Devices); n == 0 || n > 2*maxDevices {
			return fmt.Errorf("%d devices", n)
		}
	case m.Beat != nil:
		if b := m.Beat; b.RSS < 0 || b.PeakRSS < 0 || b.CPUMillis < 0 {
			return errors.New("negative usage")
		}
	case m.Failed != nil:
		if n := len(m.Failed.Tail); n > maxTail {
			return fmt.Errorf("%d lines of log", n)
		}
	}
	return nil
}

func (h *hello) check() error {
	if !strings.HasPrefix(h.Protocol, protocolName) {
		return fmt.Errorf("protocol %q", h.Protocol)
	}
	if h.Protocol != protocol {
		return nil // the rest may mean something else; the version is refused
	}
	if h.TimeoutMillis < 0 || h.timeout() > MaxTimeout {
		return fmt.Errorf("timeout of %d ms", h.TimeoutMillis)
	}
	if h.PID < 0 || h.Cores < 0 {
		return fmt.Errorf("pid %d, %d cores", h.PID, h.Cores)
	}
	return nil
}

func (r *reserve) check() error {
	if r.TimeoutMillis < 0 || time.Duration(r.TimeoutMillis)*time.Millisecond > MaxTimeout {
		return fmt.Errorf("timeout of %d ms", r.TimeoutMillis)
	}
	if r.Host != "" {
		_, err := netip.ParseAddr(r.Host)
		return err
	}
	return nil
}

func (s *start) check() error {
	if n := len(s.Cluster); n == 0 || n > maxTasks {
		return fmt.Errorf("a cluster of %d", n)
	}
	if s.Task < 0 || s.Task >= len(s.Cluster) {
		return fmt.Errorf("task %d of a cluster of %d", s.Task, len(s.Cluster))
	}
	for _, address := range s.Cluster {
		if _, err := netip.ParseAddrPort(address); err != nil {
			return err
		}
	}
	for _, n := range []int{s.IntraOpThreads, s.InterOpThreads} {
		if n < 0 || n > maxThreads {
			return fmt.Errorf("%d threads", n)
		}
	}
	if s.Devices != "" {
		_, err := devices.Parse(s.Devices)
		return err
	}
	return nil
}

// parse reads a message from its line.
func parse(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, &ProtocolError{Got: excerpt(line), Err: err}
	}
	if err := m.check(); err != nil {
		return message{}, &ProtocolError{Got: excerpt(line), Err: err}
	}
	return m, nil
}

func excerpt(b []byte) string { return string(b[:min(len(b), 64)]) }

// readEnd and writeEnd are ends of connections and pipes.
type readEnd interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

type writeEnd interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// link carries messages. One goroutine may read and any may write.
type link struct {
	reading sync.Mutex // of the deadline
	in      readEnd
	stopped bool

	buf  *bufio.Reader
	part []byte // of a line that a deadline cut

	writing sync.Mutex
	out     writeEnd
}

func newLink(in readEnd, out writeEnd) *link {
	return &link{in: in, buf: bufio.NewReaderSize(in, maxLine), out: out}
}

// read returns the next message: io.EOF at the end, os.ErrDeadlineExceeded if
// there is none by the deadline, after which it can be called again, *ProtocolError for what
// is none.
func (l *link) read(deadline time.Time) (message, error) {
	if err := l.wait(deadline); err != nil {
		return message{}, err
	}
	if len(l.part) == 0 {
		// What is no message at all may never end its line.
		first, err := l.buf.Peek(1)
		if err != nil {
			return message{}, err
		}
		if first[0] != '{' {
			got, _ := l.buf.Peek(l.buf.Buffered())
			return message{}, &ProtocolError{Got: excerpt(got), Err: errors.New("not a message")}
		}
	}
	line, err := l.buf.ReadSlice('\n')
	if len(l.part) > 0 || isTimeout(err) {
		l.part = append(l.part, line...)
		line = l.part
	}
	switch {
	case isTimeout(err):
		return message{}, err
	case errors.Is(err, bufio.ErrBufferFull), len(line) > maxLine:
		return message{}, &ProtocolError{Got: excerpt(line), Err: fmt.Errorf("a line of more than %d bytes", maxLine)}
	case errors.Is(err, io.EOF):
		return message{}, io.ErrUnexpectedEOF
	case err != nil:
		return message{}, err
	}
	l.part = nil
	return parse(bytes.TrimSuffix(line, []byte("\n")))
}

func (l *link) wait(deadline time.Time) error {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.stopped {
		return os.ErrDeadlineExceeded
	}
	return l.in.SetReadDeadline(deadline)
}

// stop ends a read that goes on, and those that would follow.
func (l *link) stop() {
	l.reading.Lock()
	defer l.reading.Unlock()
	l.stopped = true
	_ = l.in.SetReadDeadline(time.Now()) // an error is that it is closed
}

// write sends a message by the deadline.
func (l *link) write(m message, deadline time.Time) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		return fmt.Errorf("a message of %d bytes; %d are the most", len(line), maxLine)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.out.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err = l.out.Write(append(line, '\n'))
	return err
}

// interval is the time between two beats of a session: a second, or less where the
// timeout is a few.
func interval(timeout time.Duration) time.Duration { return min(time.Second, timeout/4) }
