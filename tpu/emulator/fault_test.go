package emulator_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tpu/emulator"
	pb "github.com/gorbit-ml/gorbit/tpu/emulator/internal/masterpb"
)

// words takes log lines and waits for some.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newWords() *words { return &words{more: make(chan struct{}, 1)} }

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.text.Write(b)
}

func (w *words) wait(t *testing.T, want string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		w.mu.Lock()
		text := w.text.String()
		w.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-w.more:
		case <-late:
			t.Fatalf("no %q in the log:\n%s", want, text)
		}
	}
}

// TestFaults lets the second call go wrong, and looks at what the client is told, at what is
// left of the variables, and at the next call.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault emulator.Fault
		want  []string // in the error; none is a call that runs
		steps int      // that have run then; 0 is a session that is gone
		next  string   // in the error of the next call; none is one that runs
	}{
		{"slow:50ms", nil, 2, ""},
		{"fail@2", []string{"Accelerator device halted prematurely", "as --fault fail@2 says"}, 1, ""},
		{"oom@2", []string{"Compilation failure: Ran out of memory in memory space hbm. Used 20.12G of 15.48G hbm."}, 1, "Ran out of memory"},
		{"forget@2", []string{"Session", "is not found. Possibly, this master has restarted."}, 0, "is not found"},
		{"cut@2", []string{"The same RunStep (Master) request was received twice."}, 2, ""},
		{"preempt@2:1s", []string{"is not found. Possibly, this master has restarted."}, 0, "is not found"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			numbers := readNumbers(t, 2)
			address := emulate(t, 1, c.fault)
			one := open(t, address, "testdata/step_2.pb")
			one.start()
			step := func(k int) error {
				_, err := one.try(numbers.feeds(2, k, 0), []string{"output_0_shard_0"})
				return err
			}
			if err := step(0); err != nil {
				t.Fatal(err)
			}
			err := step(1)
			if (err == nil) != (c.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			if c.steps > 0 {
				numbers.check(one, 2, c.steps)
			}
			err = step(c.steps)
			if (err == nil) != (c.next == "") || err != nil && !strings.Contains(err.Error(), c.next) {
				t.Errorf("the next call: %v, want %q", err, c.next)
			}
			if c.steps > 0 {
				return
			}
			// Another session finds no configuration and no variables, and can start again.
			two := open(t, address, "testdata/step_2.pb")
			if _, err := two.try(nil, nil, "init"); err == nil || !strings.Contains(err.Error(), "The TPU system has not been initialized.") {
				t.Errorf("before the configuration: %v", err)
			}
			two.run(nil, nil, "configure")
			if _, err := two.try(numbers.feeds(2, 0, 0), []string{"output_0_shard_0"}); err == nil {
				t.Error("a step ran without variables")
			}
			two.run(nil, nil, "init")
			two.run(numbers.feeds(2, 0, 0), []string{"output_0_shard_0"})
			numbers.check(two, 2, 1)
		})
	}
}

// TestNoAnswer lets a call hang, or the TPU be gone, until its client gives up.
func TestNoAnswer(t *testing.T) {
	for _, c := range []struct {
		fault emulator.Fault
		want  string
	}{
		{"hang@1", "something goes wrong, as the fault says"},
		{"preempt@1:1h", "the emulated TPU is preempted"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			log := newWords()
			address := emulateWith(t, emulator.Config{Fault: c.fault, Log: slog.New(slog.NewTextHandler(log, nil))})
			one := openFor(t, address, "testdata/step_2.pb", 2*time.Second)
			one.start()
			done := make(chan error, 1)
			go func() {
				_, err := one.try(readNumbers(t, 2).feeds(2, 0, 0), []string{"output_0_shard_0"})
				done <- err
			}()
			log.wait(t, c.want)
			conn, err := net.Dial("tcp", address)
			if (err == nil) == strings.HasPrefix(string(c.fault), "preempt") {
				t.Errorf("a new connection: %v", err)
			}
			if err == nil {
				defer conn.Close()
			}
			if err := <-done; err == nil {
				t.Error("the call ended without an error")
			}
		})
	}
}

func TestFaultUsage(t *testing.T) {
	topology, err := emulator.ParseTopology("1x1x1x1", 1)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[emulator.Fault]string{
		"":              "",
		"slow@3:2s":     "",
		"preempt":       "",
		"burn":          "expected one of [hang forget fail mismatch slow preempt oom cut], such as fail@5",
		"@5":            "expected one of",
		"fail@0":        "@0 is not the number of a call; expected 1 or more",
		"fail@x":        "@x is not",
		"mismatch@2":    "@2 is not the number of a call; expected 1 or more, and none for mismatch",
		"fail@5:10s":    ":10s is not a time; expected one such as 10s, for slow and preempt only",
		"preempt@5:10":  ":10 is not a time",
		"preempt@5:-1s": ":-1s is not a time",
	} {
		err := emulator.Config{Topology: topology, Fault: text}.Validate()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || fault.Of(err) != fault.Usage) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestSecondClient configures the TPU while another client uses it.
func TestSecondClient(t *testing.T) {
	t.Parallel()
	address := emulate(t, 1, emulator.None)
	one, idle, two := open(t, address, "testdata/step_2.pb"), open(t, address, "testdata/step_2.pb"), open(t, address, "testdata/step_2.pb")
	one.start()
	if devices, err := idle.session.ListDevices(); err != nil || len(devices) != 11 {
		t.Errorf("%d devices, %v", len(devices), err)
	}
	two.start()
	if _, err := one.try(nil, []string{"w_0/Read"}); err == nil || !strings.Contains(err.Error(), "is not found") {
		t.Errorf("the first client: %v", err)
	}
	numbers := readNumbers(t, 2)
	two.run(numbers.feeds(2, 0, 0), []string{"output_0_shard_0"})
	numbers.check(two, 2, 1)
	// A session that did nothing on the TPU continues, and shares the configuration.
	idle.run(nil, nil, "init")
	two.run(nil, nil, "shutdown")
	if _, err := two.try(nil, []string{"w_0/Read"}); err == nil || !strings.Contains(err.Error(), "has not been initialized") {
		t.Errorf("after the shutdown: %v", err)
	}
}

// TestAbandoned kills a client.
func TestAbandoned(t *testing.T) {
	if address := os.Getenv("GORBIT_TEST_ABANDON"); address != "" {
		open(t, address, "testdata/step_2.pb").start()
		fmt.Println("STARTED")
		select {}
	}
	t.Parallel()
	log := newWords()
	address := emulateWith(t, emulator.Config{Abandoned: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	child := testkit.Command(t, os.Args[0], "-test.run=^TestAbandoned$")
	child.Env = append(os.Environ(), "GORBIT_TEST_ABANDON="+address)
	out := newWords()
	child.Stdout = out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "STARTED")
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	log.wait(t, "its client is gone")
	open(t, address, "testdata/step_2.pb").start()
}

// TestGarbage sends what is no request.
func TestGarbage(t *testing.T) {
	t.Parallel()
	address := emulate(t, 1, emulator.None)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, method := range []string{"CreateSession", "ExtendSession", "RunStep", "ListDevices", "CloseSession"} {
		for _, garbage := range []string{"\xff\xff\xff", "\x0a\xff\xff\xff\xff\x0f", "\x0f"} {
			err := conn.Invoke(ctx, "/tensorflow.MasterService/"+method, raw(garbage), raw(nil), grpc.ForceCodec(rawCodec{}))
			if err == nil || status.Code(err) == codes.Unavailable {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	for method, in := range map[string]proto.Message{
		"RunStep":       &pb.RunStepRequest{SessionHandle: "none"},
		"ExtendSession": &pb.ExtendSessionRequest{SessionHandle: "none"},
		"CloseSession":  &pb.CloseSessionRequest{SessionHandle: "none"},
		"ListDevices":   &pb.ListDevicesRequest{SessionHandle: "none"},
	} {
		if err := conn.Invoke(ctx, "/tensorflow.MasterService/"+method, in, &pb.RunStepResponse{}); status.Code(err) != codes.Aborted {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, bytes := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x05hello", strings.Repeat("\xff", 1<<16)} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(bytes))
		c.Close()
	}
	open(t, address, "testdata/step_2.pb").start()
}

// raw is a message that is sent as it is.
type raw []byte

type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return v.(raw), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { return nil }
func (rawCodec) Name() string                    { return "proto" }
