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
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

// protocol is the version that both sides send first. Its number changes with the messages.
const (
	protocolName = "gorbit worker "
	protocol     = protocolName + "2"
)

const (
	// maxLine limits a message, including its newline.
	maxLine = 64 << 10
	// maxTasks limits a cluster, so that its addresses fit into a message.
	maxTasks = 1024
	// maxDevices is more than any machine has.
	maxDevices = 256
	// maxTail limits the log lines that a failed worker sends.
	maxTail = 20
)

// message is one line: a JSON object with exactly one of these fields.
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
	Open     *open     `json:"open,omitempty"`
}

// hello is the first message of both sides. Only a chief sets the session's timeout; a worker sets
// all other fields.
type hello struct {
	Protocol      string `json:"protocol"`
	Gorbit        string `json:"gorbit"`
	TensorFlow    string `json:"tensorflow"`
	TimeoutMillis int64  `json:"timeout_ms,omitempty"`
	Processor     string `json:"processor,omitempty"`
	Instructions  string `json:"instructions,omitempty"`
	BF16          bool   `json:"bf16,omitempty"`
	NoBF16        string `json:"no_bf16,omitempty"`
	NoFP16        string `json:"no_fp16,omitempty"`
	Devices       string `json:"devices,omitempty"`
	PID           int    `json:"pid,omitempty"`
	Cores         int    `json:"cores,omitempty"`
}

func (h *hello) timeout() time.Duration { return time.Duration(h.TimeoutMillis) * time.Millisecond }

// busy is the reply to a second chief.
type busy struct {
	Peer  string    `json:"peer"`
	Since time.Time `json:"since"`
}

// reserve requests a child with a port. In a locked session, the chief gives the session a name. The
// supervisor adds the host and the timeout, or that the server needs no port but answers with the
// supervisor's, or the path of the Unix socket that it is to have.
type reserve struct {
	NoOneDNN      bool   `json:"no_onednn,omitempty"`
	Session       string `json:"session,omitempty"`
	Locked        bool   `json:"locked,omitempty"`
	Socket        string `json:"socket,omitempty"`
	Port          int    `json:"port,omitempty"`
	Host          string `json:"host,omitempty"`
	TimeoutMillis int64  `json:"timeout_ms,omitempty"`
}

// reserved is the port reserved for TensorFlow's server, or the path of its Unix socket.
type reserved struct {
	Port   int    `json:"port,omitempty"`
	Socket string `json:"socket,omitempty"`
}

// start makes the child start TensorFlow's server. In a locked session, the cluster's addresses are
// those of the workers, and names are the hosts that their certificates are for. The supervisor adds
// the devices, and the folder of the sockets.
type start struct {
	Cluster        []string `json:"cluster"`
	Names          []string `json:"names,omitempty"`
	Sockets        string   `json:"sockets,omitempty"`
	Task           int      `json:"task"`
	IntraOpThreads int      `json:"intra_op_threads,omitempty"`
	InterOpThreads int      `json:"inter_op_threads,omitempty"`
	Devices        string   `json:"devices,omitempty"`
}

// started names the devices of a running server.
type started struct {
	Devices []string `json:"devices"`
}

// beat says that the sender is alive. One from a worker has the usage of its child.
type beat struct {
	RSS       int64 `json:"rss,omitempty"`
	PeakRSS   int64 `json:"peak_rss,omitempty"`
	CPUMillis int64 `json:"cpu_ms,omitempty"`
}

// failed ends a session, sent by the worker.
type failed struct {
	Message string `json:"message"`
	// Class is the error's class; "" means fault.Failed.
	Class fault.Class `json:"class,omitempty"`
	Final bool        `json:"final,omitempty"`
	Tail  []string    `json:"tail,omitempty"`
}

// failedBy returns the message for an error at a worker.
func failedBy(err error) *failed {
	f := &failed{Message: clip(err.Error())}
	// A worker that was stopped has saved nothing, so to its chief this is a failure.
	if class := fault.Of(err); class == fault.Damaged || class == fault.Usage {
		f.Class = class
	}
	return f
}

// err returns the error at the chief.
func (f *failed) err() *FailedError {
	e := &FailedError{Message: f.Message, Class: fault.Failed, Final: f.Final, Tail: f.Tail}
	if f.Class == fault.Damaged || f.Class == fault.Usage {
		e.Class = f.Class
	}
	return e
}

// bye ends a session, sent by the chief. It is also the worker's reply once its child has ended.
type bye struct {
	// Done means that the run has ended, too.
	Done bool `json:"done,omitempty"`
}

// open is the first message on a connection between TensorFlows of a locked session.
type open struct {
	Session string `json:"session"`
}

// check returns an error for a message that no peer of this protocol would send.
func (m message) check() error {
	n := 0
	for _, there := range []bool{
		m.Hello != nil, m.Busy != nil, m.Reserve != nil, m.Reserved != nil, m.Start != nil,
		m.Started != nil, m.Beat != nil, m.Failed != nil, m.Bye != nil, m.Open != nil,
	} {
		if there {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d known messages in one line; expected 1", n)
	}
	switch {
	case m.Hello != nil:
		return m.Hello.check()
	case m.Reserve != nil:
		return m.Reserve.check()
	case m.Reserved != nil:
		if m.Reserved.Socket != "" {
			return checkPath(m.Reserved.Socket)
		}
		if m.Reserved.Port < 1 || m.Reserved.Port > 65535 {
			return fmt.Errorf("port is %d; expected 1 to 65535", m.Reserved.Port)
		}
	case m.Start != nil:
		return m.Start.check()
	case m.Started != nil:
		if n := len(m.Started.Devices); n == 0 || n > 2*maxDevices {
			return fmt.Errorf("number of devices is %d; expected 1 to %d", n, 2*maxDevices)
		}
	case m.Beat != nil:
		if b := m.Beat; b.RSS < 0 || b.PeakRSS < 0 || b.CPUMillis < 0 {
			return errors.New("negative usage")
		}
	case m.Failed != nil:
		if n := len(m.Failed.Tail); n > maxTail {
			return fmt.Errorf("number of log lines is %d; expected at most %d", n, maxTail)
		}
	}
	return nil
}

func (h *hello) check() error {
	if !strings.HasPrefix(h.Protocol, protocolName) {
		return fmt.Errorf("protocol is %q; expected %q", h.Protocol, protocol)
	}
	if h.Protocol != protocol {
		return nil // the caller rejects the version; other fields may mean something else
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
	if r.Socket != "" {
		return checkPath(r.Socket)
	}
	if r.Host != "" {
		_, err := netip.ParseAddr(r.Host)
		return err
	}
	return nil
}

// checkPath returns an error if no Unix socket can have this path.
func checkPath(socket string) error {
	if !filepath.IsAbs(socket) {
		return fmt.Errorf("the path of the socket is %q; expected an absolute one", socket)
	}
	return tfserver.CheckSocket(socket)
}

func (s *start) check() error {
	if n := len(s.Cluster); n == 0 || n > maxTasks {
		return fmt.Errorf("number of tasks is %d; expected 1 to %d", n, maxTasks)
	}
	if s.Task < 0 || s.Task >= len(s.Cluster) {
		return fmt.Errorf("task is %d; expected 0 to %d", s.Task, len(s.Cluster)-1)
	}
	for _, address := range s.Cluster {
		if path, ok := strings.CutPrefix(address, unixPrefix); ok {
			if err := checkPath(path); err != nil {
				return err
			}
		} else if _, err := netip.ParseAddrPort(address); err != nil {
			return err
		}
	}
	for _, n := range []int{s.IntraOpThreads, s.InterOpThreads} {
		if n < 0 || n > devices.MostThreads {
			return fmt.Errorf("number of threads is %d; expected 0 to %d", n, devices.MostThreads)
		}
	}
	if s.Devices != "" {
		_, err := devices.Parse(s.Devices)
		return err
	}
	return nil
}

// parse parses a line.
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

// readEnd and writeEnd are the ends of connections and pipes.
type readEnd interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

type writeEnd interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// link sends and receives messages. Only one goroutine may read; any may write.
type link struct {
	reading sync.Mutex // of the deadline
	in      readEnd
	stopped bool

	buf  *bufio.Reader
	part []byte // of a line that was cut by a deadline

	writing sync.Mutex
	out     writeEnd
}

func newLink(in readEnd, out writeEnd) *link {
	return &link{in: in, buf: bufio.NewReaderSize(in, maxLine), out: out}
}

// read returns the next message. The error is io.EOF at the end, os.ErrDeadlineExceeded if there is
// none by the deadline (read can then be called again), and a *ProtocolError for an invalid one.
func (l *link) read(deadline time.Time) (message, error) {
	if err := l.wait(deadline); err != nil {
		return message{}, err
	}
	if len(l.part) == 0 {
		// Another protocol may never send a newline.
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

// stop ends the current read and all later ones.
func (l *link) stop() {
	l.reading.Lock()
	defer l.reading.Unlock()
	l.stopped = true
	_ = l.in.SetReadDeadline(time.Now()) // fails only if it is closed
}

// write sends a message by the deadline.
func (l *link) write(m message, deadline time.Time) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		return fmt.Errorf("the message has %d bytes; expected at most %d", len(line), maxLine)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.out.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err = l.out.Write(append(line, '\n'))
	return err
}

// interval returns the time between two beats of a session: a second, or less for short timeouts.
func interval(timeout time.Duration) time.Duration { return min(time.Second, timeout/4) }
