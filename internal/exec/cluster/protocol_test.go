package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// examples are a message of every kind as it is written, with every field.
var examples = []string{
	`{"hello":{"protocol":"gorbit worker 2","gorbit":"0.1.0","tensorflow":"2.18.1","timeout_ms":60000,"processor":"amd64","instructions":"avx2","devices":"cpu:2","pid":12,"cores":8}}`,
	`{"busy":{"peer":"10.0.0.1:40000","since":"2026-01-02T03:04:05Z"}}`,
	`{"reserve":{"no_onednn":true,"host":"127.0.0.1","timeout_ms":60000}}`,
	`{"reserved":{"port":40001}}`,
	`{"reserved":{"socket":"/tmp/gorbit-sockets-1/own"}}`,
	`{"reserve":{"socket":"/tmp/gorbit-sockets-1/own","timeout_ms":60000}}`,
	`{"start":{"cluster":["unix:/tmp/gorbit-sockets-1/own"],"task":0}}`,
	`{"start":{"cluster":["10.0.0.2:40001","[fe80::1]:40002"],"task":1,"intra_op_threads":2,"inter_op_threads":1,"devices":"gpu"}}`,
	`{"started":{"devices":["/job:worker/replica:0/task:1/device:GPU:0"]}}`,
	`{"beat":{"rss":1,"peak_rss":2,"cpu_ms":3}}`,
	`{"failed":{"message":"it failed","final":true,"tail":["a","b"]}}`,
	`{"bye":{}}`,
}

func TestMessages(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	from, to := newLink(a, a), newLink(b, b)
	for _, line := range examples {
		m, err := parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := from.write(m, time.Now().Add(long)); err != nil {
				t.Error(err)
			}
		}()
		got, err := to.read(time.Now().Add(long))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s came as %+v", line, got)
		}
	}
}

func TestNoMessages(t *testing.T) {
	for want, line := range map[string]string{
		"unexpected end":                      `{`,
		"0 known messages":                    `{"later":{}}`,
		"2 known messages":                    `{"beat":{},"bye":{}}`,
		"cannot unmarshal":                    `{"beat":3}`,
		`protocol is "http"; expected`:        `{"hello":{"protocol":"http"}}`,
		"timeout of -1 ms":                    `{"hello":{"protocol":"gorbit worker 2","timeout_ms":-1}}`,
		"timeout of 9000000 ms":               `{"hello":{"protocol":"gorbit worker 2","timeout_ms":9000000}}`,
		"port is 65536; expected":             `{"reserved":{"port":65536}}`,
		"expected an absolute one":            `{"reserved":{"socket":"own"}}`,
		"bytes; expected at most 107":         `{"start":{"cluster":["unix:/` + strings.Repeat("a", 107) + `"],"task":0}}`,
		"number of tasks is 0; expected":      `{"start":{}}`,
		"task is 1; expected 0 to 0":          `{"start":{"cluster":["10.0.0.1:1"],"task":1}}`,
		"invalid":                             `{"start":{"cluster":["10.0.0.1:x"]}}`,
		"number of threads is -1; expected":   `{"start":{"cluster":["10.0.0.1:1"],"inter_op_threads":-1}}`,
		"number of devices is 0; expected":    `{"started":{}}`,
		"negative usage":                      `{"beat":{"rss":-1}}`,
		"number of log lines is 21; expected": `{"failed":{"tail":["","","","","","","","","","","","","","","","","","","","",""]}}`,
	} {
		var spoken *ProtocolError
		if _, err := parse([]byte(line)); !errors.As(err, &spoken) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		sent string
		want string
	}{
		{"", io.EOF.Error()},
		{`{"bye":{}}`, io.ErrUnexpectedEOF.Error()},
		{"hello\n", `it sent "hello\n"`},
		{`{"x":"` + strings.Repeat("x", maxLine) + "\"}\n", "more than 65536 bytes"},
	} {
		a, b := net.Pipe()
		go func() {
			_, _ = io.WriteString(a, test.sent) // it is not read to its end
			a.Close()
		}()
		if _, err := newLink(b, b).read(time.Now().Add(long)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.20q: %v, want %s", test.sent, err, test.want)
		}
		b.Close()
	}
}

func TestDeadlines(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	l := newLink(a, a)
	if _, err := l.read(time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if err := l.write(message{Bye: new(bye)}, time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	read := make(chan error)
	go func() {
		_, err := l.read(time.Now().Add(long))
		read <- err
	}()
	l.stop()
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stopped read: %v", err)
	}
}

// TestLargestMessages writes what has the most to say.
func TestLargestMessages(t *testing.T) {
	largest := message{Start: &start{Devices: "gpu:256", IntraOpThreads: devices.MostThreads, InterOpThreads: devices.MostThreads, Task: maxTasks - 1}}
	for range maxTasks {
		largest.Start.Cluster = append(largest.Start.Cluster, "[2001:0db8:1111:2222:3333:4444:5555:6666]:65535")
	}
	log := &tail{}
	for range 2 * tailLines {
		if _, err := io.WriteString(log, strings.Repeat("\x01", 3*tailWidth)+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []message{largest, {Failed: &failed{Message: clip(strings.Repeat("\x01", 1<<20)), Tail: log.last()}}} {
		a, b := net.Pipe()
		go func() {
			if err := newLink(a, a).write(m, time.Now().Add(long)); err != nil {
				t.Error(err)
			}
			a.Close()
		}()
		got, err := newLink(b, b).read(time.Now().Add(long))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("came as %+v, %v", got, err)
		}
		b.Close()
	}
}

func TestTail(t *testing.T) {
	var out strings.Builder
	log := &tail{to: &out}
	for _, s := range []string{"one\ntw", "o\n\n", "three"} {
		if n, err := io.WriteString(log, s); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := strings.Join(log.last(), "|"), "one|two|three"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if got, want := out.String(), "one\ntwo\n\nthree"; got != want {
		t.Errorf("passed on %q, want %q", got, want)
	}
}

// TestTailOfCrash keeps what a crash says, not its dump.
func TestTailOfCrash(t *testing.T) {
	log := new(tail)
	if _, err := io.WriteString(log, "Check failed: x\nSIGABRT: abort\nPC=0x1 m=0 sigcode=0\n\ngoroutine 1 [running]:\nmain.main()\nrax 0x0\ngorbit: crashed with SIGABRT\n/lib/libc.so.6(abort+0xd3)[0x7f2637]\n"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(log.last(), "|"), "Check failed: x|SIGABRT: abort|gorbit: crashed with SIGABRT"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range examples {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parse(line)
		if err != nil {
			var spoken *ProtocolError
			if !errors.As(err, &spoken) {
				t.Errorf("got %v", err)
			}
			return
		}
		if err := m.check(); err != nil {
			t.Errorf("%q became %+v: %v", line, m, err)
		}
	})
}

// TestClassOfFailure sends errors as a worker does and wants their class at the chief.
func TestClassOfFailure(t *testing.T) {
	for _, test := range []struct {
		err  error
		want fault.Class
	}{
		{fault.Damagedf("record 3"), fault.Damaged},
		{fault.Usagef("devices"), fault.Usage},
		{errors.New("gone"), fault.Failed},
		{context.Canceled, fault.Failed},
	} {
		line, err := json.Marshal(message{Failed: failedBy(test.err)})
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		var failure error = &WorkerError{Address: "a:1", Phase: PhaseRun, Err: m.Failed.err()}
		if got := fault.Of(failure); got != test.want || !strings.Contains(failure.Error(), test.err.Error()) {
			t.Errorf("%v comes as %v of class %s, want %s", test.err, failure, got, test.want)
		}
	}
	if got := (&failed{Class: "strange"}).err().Class; got != fault.Failed {
		t.Errorf("an unknown class is %s", got)
	}
}
