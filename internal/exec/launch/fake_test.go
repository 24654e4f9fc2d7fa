package launch

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// Environment variables of the fake programs: the folder where each leaves a file
// named by its number, what workers exit with at once, and whether what they start
// ends with them by itself.
const (
	fakeDir    = "FAKE_DIR"
	fakeExit   = "FAKE_WORKER_EXIT"
	fakeOrphan = "FAKE_ORPHAN"
)

// The test binary is gorbit worker, gorbit train and gorbit launch for those that it starts.
func TestMain(m *testing.M) {
	dir := os.Getenv(fakeDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), []byte(os.Args[1]), 0o600); err != nil {
		panic(err)
	}
	switch os.Args[1] {
	case "worker":
		fakeWorker(os.Args)
	case "server":
		fmt.Println("ready")
		for {
			time.Sleep(time.Hour)
		}
	case "train":
		fakeTrain(os.Args)
	case "launch":
		program, _ := os.Executable()
		c := Config{Stdout: os.Stdout, Stderr: os.Stderr, Log: slog.New(slog.DiscardHandler), Grace: time.Minute}
		c.Commands, _ = Plan{Hosts: []Host{{Address: os.Args[2]}}, Strategy: devices.MultiWorker}.Make(program, Access{}, os.Args[3:])
		code, err := Run(context.Background(), c)
		fmt.Println(code, err)
	}
}

// argument returns the value of a flag.
func argument(args []string, flag string) string {
	return args[slices.Index(args, flag)+1]
}

// fakeWorker serves until it is told to die.
func fakeWorker(args []string) {
	if code, err := strconv.Atoi(os.Getenv(fakeExit)); err == nil {
		fmt.Fprintln(os.Stderr, "flags are wrong")
		os.Exit(code)
	}
	child := exec.Command(args[0], "server")
	child.Stderr = os.Stderr
	if os.Getenv(fakeOrphan) == "" {
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	ready, err := child.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := child.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", argument(args, "--listen"))
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "serving")
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if line == "die\n" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		fmt.Fprintf(conn, "done %s", line)
		conn.Close()
	}
}

// tell tells a worker something, and again until it has answered.
func tell(address, what string) {
	for range 2000 {
		if conn, err := net.Dial("tcp", address); err == nil {
			fmt.Fprintln(conn, what)
			_, err := bufio.NewReader(conn).ReadString('\n')
			conn.Close()
			if err == nil || what == "die" {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "no worker answered at %s\n", address)
	os.Exit(1)
}

// fakeTrain does what its last arguments say, in order.
func fakeTrain(args []string) {
	workers := strings.Split(argument(args, "--workers"), ",")
	step := func() {
		for _, w := range workers {
			tell(w, "step")
		}
		fmt.Println("step done")
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	for _, do := range args[slices.Index(args, "--do")+1:] {
		verb, rest, _ := strings.Cut(do, ":")
		n, _ := strconv.Atoi(rest)
		switch verb {
		case "step":
			step()
		case "die":
			tell(workers[n], "die")
		case "exit":
			os.Exit(n)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "crash": // the first n times
			if started, _ := filepath.Glob(filepath.Join(os.Getenv(fakeDir), "chief*")); len(started) < n {
				if err := os.WriteFile(filepath.Join(os.Getenv(fakeDir), "chief"+strconv.Itoa(os.Getpid())), nil, 0o600); err != nil {
					panic(err)
				}
				_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
				debug.SetTraceback("crash")
				panic("as a test wants it")
			}
		case "wait":
			fmt.Fprintln(os.Stderr, "waiting")
			<-term
			step()
			fmt.Print("saved") // no end of line
			os.Exit(75)
		case "stop":
			fmt.Fprintln(os.Stderr, "waiting")
			<-term
			os.Exit(75)
		case "hang":
			fmt.Fprintln(os.Stderr, "waiting")
			for {
				time.Sleep(time.Hour)
			}
		}
	}
}
