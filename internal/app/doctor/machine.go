package doctor

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Machine is what the checks see of a machine.
type Machine struct {
	// Files is the root of the file system, of which /proc, /sys and /dev are read.
	Files fs.FS
	// Getenv returns an environment variable's value, or "".
	Getenv func(string) string
	// Cores is the number of cores that this process may be scheduled on.
	Cores int
	// OpenFiles is the number of files that this process may have open.
	OpenFiles uint64
	// Space returns the free bytes of the file system of a folder, and its type by statfs(2).
	Space func(folder string) (free uint64, kind int64, err error)
	// Writable returns an error if no file can be made in a folder.
	Writable func(folder string) error
	// Loopback returns an error if nothing can listen on 127.0.0.1.
	Loopback func() error
}

// ThisMachine returns the machine that the program runs on.
func ThisMachine(cores int) Machine {
	m := Machine{Files: os.DirFS("/"), Getenv: os.Getenv, Cores: cores, OpenFiles: math.MaxUint64, Space: space, Writable: writable, Loopback: loopback}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		m.OpenFiles = limit.Cur
	}
	return m
}

func space(folder string) (uint64, int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), int64(s.Type), nil
}

func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".gorbit-doctor-*")
	if err != nil {
		return err
	}
	name := f.Name()
	_, err = f.WriteString("x")
	if e := f.Close(); err == nil {
		err = e
	}
	if e := os.Remove(name); err == nil {
		err = e
	}
	return err
}

func loopback() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return l.Close()
}

// Check looks at a machine. The folder is the one that a run would be made in, and must exist.
func Check(m Machine, folder string) []Finding {
	findings := []Finding{m.cores(), m.memory(), m.openFiles(), m.folder("run folder", folder)}
	temp := m.Getenv("TMPDIR")
	if temp == "" {
		temp = "/tmp"
	}
	if filepath.Clean(temp) != filepath.Clean(folder) {
		findings = append(findings, m.temporary(temp))
	}
	findings = append(findings, m.loopback())
	return append(findings, m.environment()...)
}

// read returns a file of the machine without white space around it, or "".
func (m Machine) read(name string) string {
	text, err := fs.ReadFile(m.Files, strings.TrimPrefix(name, "/"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

// group returns a file of this process's control group: the least value of the group and of those
// above it, which limit it as well. Files and values are those of control groups version 2
// (https://docs.kernel.org/admin-guide/cgroup-v2.html); version 1 has the second name.
func (m Machine) group(file, old string, value func(string) float64) float64 {
	least := math.Inf(1)
	for line := range strings.Lines(m.read("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		root, name := "/sys/fs/cgroup", file
		if parts[0] != "0" {
			controller, _, _ := strings.Cut(old, ".")
			if !strings.Contains(","+parts[1]+",", ","+controller+",") {
				continue
			}
			root, name = path.Join(root, controller), old
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			if text := m.read(path.Join(root, at, name)); text != "" {
				least = min(least, value(text))
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// cores compares the cores with what the control group lets the process use of them.
func (m Machine) cores() Finding {
	f := Finding{Check: "cores", Level: OK, Text: words.Count(int64(m.Cores), "core")}
	quota := m.group("cpu.max", "cpu.cfs_quota_us", func(text string) float64 {
		fields := strings.Fields(text)
		used, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || used <= 0 {
			return math.Inf(1)
		}
		period := 100_000.0
		if len(fields) > 1 {
			if p, err := strconv.ParseFloat(fields[1], 64); err == nil && p > 0 {
				period = p
			}
		}
		return used / period
	})
	if quota < float64(m.Cores)-0.01 {
		f.Level = Note
		f.Text = fmt.Sprintf("%s, of which the control group allows %.3g", f.Text, quota)
		f.Do = fmt.Sprintf("threads beyond that are stopped in turns: pass --set runtime.intra_op_threads=%d, or give whole cores (taskset, cpuset)", max(1, int(quota)))
	}
	return f
}

const gib = 1 << 30

// Memory returns how many bytes of the machine's memory are available, how many there are, and the
// control group's limit, which is infinite if there is none. They are 0 if they are not known.
func (m Machine) Memory() (free, total, limit float64) {
	s := bufio.NewScanner(strings.NewReader(m.read("/proc/meminfo")))
	for s.Scan() {
		var name string
		var kib float64
		if n, _ := fmt.Sscanf(s.Text(), "%s %f", &name, &kib); n == 2 {
			switch name {
			case "MemTotal:":
				total = kib * 1024
			case "MemAvailable:":
				free = kib * 1024
			}
		}
	}
	limit = m.group("memory.max", "memory.limit_in_bytes", func(text string) float64 {
		bytes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return math.Inf(1)
		}
		return bytes
	})
	return free, total, limit
}

// memory looks at what is available of the machine's memory and the control group's limit.
func (m Machine) memory() Finding {
	f := Finding{Check: "memory", Level: OK}
	free, total, limit := m.Memory()
	if total == 0 {
		f.Level, f.Text = Note, "unknown: /proc/meminfo cannot be read"
		f.Do = "mount /proc: without it steps are slower, and what a run needs is not checked"
		return f
	}
	f.Text = fmt.Sprintf("%.1f of %.1f GiB available", free/gib, total/gib)
	if limit < total {
		f.Text += fmt.Sprintf("; the control group's limit is %.1f GiB", limit/gib)
		free = min(free, limit)
	}
	if free < 2*gib {
		f.Level = Note
		f.Do = "fine-tuning a BERT of 6 layers takes some 1.5 GiB, of 12 layers 4: end other programs, or take a smaller data.batch_size with --accumulate"
	}
	return f
}

func (m Machine) openFiles() Finding {
	f := Finding{Check: "open files", Level: OK, Text: fmt.Sprintf("up to %d", m.OpenFiles)}
	if m.OpenFiles > 1<<30 {
		f.Text = "no limit"
	}
	if m.OpenFiles < 1024 {
		f.Level, f.Do = Note, "data of many files may fail: ulimit -n 4096"
	}
	return f
}

// Types of file systems by statfs(2) that a run's lock or its renames do not reach other machines on.
const (
	nfs   = 0x6969
	tmpfs = 0x01021994
)

func (m Machine) folder(check, folder string) Finding {
	f := Finding{Check: check, Level: OK}
	free, kind, err := m.Space(folder)
	if err == nil {
		err = m.Writable(folder)
	}
	if err != nil {
		f.Level, f.Text = Problem, fmt.Sprintf("%s: %v", folder, err)
		f.Do = "name a folder that this user may write to: gorbit doctor FOLDER"
		return f
	}
	f.Text = fmt.Sprintf("%s: %.1f GiB free", folder, float64(free)/gib)
	switch {
	case free < 2*gib:
		f.Level, f.Do = Note, "a checkpoint of a BERT of 12 layers has 1.3 GB, and a run keeps three: free some space, or set checkpoint.max_to_keep=1"
	case kind == nfs:
		f.Level, f.Text = Note, f.Text+", on NFS"
		f.Do = "two runs are kept apart by locks of files, which NFS may not pass on to other machines: start a run on one machine only"
	case kind == tmpfs:
		f.Level, f.Text = Note, f.Text+", in memory"
		f.Do = "checkpoints are lost when the machine restarts, and take memory from the training"
	}
	return f
}

func (m Machine) temporary(folder string) Finding {
	f := Finding{Check: "temporary files", Level: OK, Text: folder}
	if err := m.Writable(folder); err != nil {
		f.Level, f.Text = Note, fmt.Sprintf("%s: %v", folder, err)
		f.Do = "exports and models from buckets are copied there first: set TMPDIR to a folder that this user may write to"
	}
	return f
}

func (m Machine) loopback() Finding {
	f := Finding{Check: "loopback", Level: OK, Text: "127.0.0.1 can be listened on"}
	if err := m.Loopback(); err != nil {
		f.Level, f.Text = Note, fmt.Sprintf("127.0.0.1 cannot be listened on: %v", err)
		f.Do = "training on several processes needs it: ip link set lo up"
	}
	return f
}

// variables are the environment variables that change what TensorFlow or gorbit does, and what they
// change. A variable is reported if it has a value for which usual is false.
var variables = []struct {
	name  string
	usual func(string) bool
	what  string
}{
	{"TF_ENABLE_ONEDNN_OPTS", func(v string) bool { return v != "0" }, "TensorFlow's own kernels replace oneDNN's, and most steps are slower"},
	{"ONEDNN_MAX_CPU_ISA", nil, "oneDNN uses no later instructions than these"},
	{"DNNL_MAX_CPU_ISA", nil, "oneDNN uses no later instructions than these"},
	{"TF_NUM_INTRAOP_THREADS", nil, "gorbit sets the number of threads by runtime.intra_op_threads"},
	{"TF_NUM_INTEROP_THREADS", nil, "gorbit sets the number of threads by runtime.inter_op_threads"},
	{"TF_XLA_FLAGS", nil, "XLA is configured from outside, and results may differ in their last digits"},
	{"CUDA_VISIBLE_DEVICES", nil, "only these GPUs are used"},
	{"MALLOC_ARENA_MAX", nil, "malloc is configured from outside, and gorbit leaves it alone: steps may be some 4 % slower"},
	{"MALLOC_TRIM_THRESHOLD_", nil, "malloc is configured from outside, and gorbit leaves it alone: steps may be some 4 % slower"},
	{"GLIBC_TUNABLES", nil, "malloc may be configured from outside, and gorbit leaves it alone then: steps may be some 4 % slower"},
	{"LD_PRELOAD", nil, "these libraries are loaded first, and may replace what gorbit defines for TensorFlow"},
}

func (m Machine) environment() []Finding {
	var findings []Finding
	for _, v := range variables {
		value := m.Getenv(v.name)
		if value == "" || v.usual != nil && v.usual(value) {
			continue
		}
		findings = append(findings, Finding{Check: "environment", Level: Note,
			Text: fmt.Sprintf("%s is %q: %s", v.name, value, v.what), Do: "if that is not meant: unset " + v.name})
	}
	if len(findings) == 0 {
		findings = append(findings, Finding{Check: "environment", Level: OK, Text: "no variable changes what TensorFlow does"})
	}
	return findings
}

// Accelerators returns what the machine has in addition to its processor by its device files:
// whether there is a GPU of NVIDIA's, and whether there is a TPU.
func (m Machine) Accelerators() (gpu, tpu bool) {
	gpus, _ := fs.Glob(m.Files, "dev/nvidia[0-9]*")
	accels, _ := fs.Glob(m.Files, "dev/accel[0-9]*")
	return len(gpus) > 0, len(accels) > 0
}
