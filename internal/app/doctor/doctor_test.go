package doctor

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// healthy is a machine on which every check is content.
func healthy() Machine {
	return Machine{
		Files: fstest.MapFS{
			"proc/meminfo":                 file("MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   12582912 kB\n"),
			"proc/self/cgroup":             file("0::/system.slice/run.scope\n"),
			"sys/fs/cgroup/cgroup.procs":   file("1\n"),
			"sys/fs/cgroup/system.slice/x": file(""),
		},
		Getenv:    func(string) string { return "" },
		Cores:     4,
		OpenFiles: 4096,
		Space:     func(string) (uint64, int64, error) { return 100 * gib, 0xef53, nil },
		Writable:  func(string) error { return nil },
		Loopback:  func() error { return nil },
	}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func with(name, text string) func(*Machine) {
	return func(m *Machine) { m.Files.(fstest.MapFS)[name] = file(text) }
}

func TestCheck(t *testing.T) {
	const scope = "sys/fs/cgroup/system.slice/run.scope/"
	for _, tt := range []struct {
		name   string
		change func(*Machine)
		check  string
		level  Level
		text   string
	}{
		{"cores", nil, "cores", OK, "4 cores"},
		{"memory", nil, "memory", OK, "12.0 of 16.0 GiB available"},
		{"files", nil, "open files", OK, "up to 4096"},
		{"folder", nil, "run folder", OK, "/runs: 100.0 GiB free"},
		{"loopback", nil, "loopback", OK, ""},
		{"environment", nil, "environment", OK, "no variable"},
		{"quota", with(scope+"cpu.max", "150000 100000"), "cores", Note, "4 cores, of which the control group allows 1.5"},
		{"quota above", with("sys/fs/cgroup/system.slice/cpu.max", "200000 100000"), "cores", Note, "allows 2"},
		{"no quota", with(scope+"cpu.max", "max 100000"), "cores", OK, "4 cores"},
		{"large quota", with(scope+"cpu.max", "800000 100000"), "cores", OK, "4 cores"},
		{"damaged quota", with(scope+"cpu.max", "many 0"), "cores", OK, "4 cores"},
		{"memory limit", with(scope+"memory.max", "1073741824"), "memory", Note, "the control group's limit is 1.0 GiB"},
		{"version 1", func(m *Machine) {
			with("proc/self/cgroup", "5:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n")(m)
			with("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "1073741824")(m)
		}, "memory", Note, "limit is 1.0 GiB"},
		{"little memory", with("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n"), "memory", Note, "1.0 of 4.0 GiB"},
		{"no /proc", func(m *Machine) { m.Files = fstest.MapFS{} }, "memory", Note, "/proc/meminfo cannot be read"},
		{"few files", func(m *Machine) { m.OpenFiles = 256 }, "open files", Note, "up to 256"},
		{"all files", func(m *Machine) { m.OpenFiles = 1 << 63 }, "open files", OK, "no limit"},
		{"full disk", func(m *Machine) { m.Space = func(string) (uint64, int64, error) { return gib, 0, nil } }, "run folder", Note, "1.0 GiB free"},
		{"NFS", func(m *Machine) { m.Space = func(string) (uint64, int64, error) { return 100 * gib, nfs, nil } }, "run folder", Note, "on NFS"},
		{"in memory", func(m *Machine) { m.Space = func(string) (uint64, int64, error) { return 100 * gib, tmpfs, nil } }, "run folder", Note, "in memory"},
		{"no folder", func(m *Machine) {
			m.Space = func(string) (uint64, int64, error) { return 0, 0, fs.ErrNotExist }
		}, "run folder", Problem, "file does not exist"},
		{"not writable", func(m *Machine) { m.Writable = func(string) error { return fs.ErrPermission } }, "run folder", Problem, "permission denied"},
		{"temporary", func(m *Machine) {
			m.Writable = func(dir string) error {
				if dir == "/tmp" {
					return fs.ErrPermission
				}
				return nil
			}
		}, "temporary files", Note, "/tmp: permission denied"},
		{"no loopback", func(m *Machine) { m.Loopback = func() error { return errors.New("no such device") } }, "loopback", Note, "no such device"},
		{"without oneDNN", env("TF_ENABLE_ONEDNN_OPTS", "0"), "environment", Note, `TF_ENABLE_ONEDNN_OPTS is "0"`},
		{"with oneDNN", env("TF_ENABLE_ONEDNN_OPTS", "1"), "environment", OK, ""},
		{"preloaded", env("LD_PRELOAD", "/lib/x.so"), "environment", Note, `LD_PRELOAD is "/lib/x.so"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := healthy()
			if tt.change != nil {
				tt.change(&m)
			}
			findings := Check(m, "/runs")
			for _, f := range findings {
				if f.Level != OK && f.Do == "" {
					t.Errorf("%s: %s: nothing to do about it", f.Check, f.Text)
				}
				if f.Check == tt.check {
					if f.Level != tt.level || !strings.Contains(f.Text, tt.text) {
						t.Errorf("%s: %s: %q; expected %s: ...%q", f.Check, f.Level, f.Text, tt.level, tt.text)
					}
					if want := map[bool]int{true: 1}[tt.level == Problem]; Problems(findings) != want {
						t.Errorf("%d problems; expected %d: %v", Problems(findings), want, findings)
					}
					return
				}
			}
			t.Errorf("no finding of %s in %v", tt.check, findings)
		})
	}
}

func env(name, value string) func(*Machine) {
	return func(m *Machine) {
		m.Getenv = func(asked string) string {
			if asked == name {
				return value
			}
			return ""
		}
	}
}

func TestThisMachine(t *testing.T) {
	findings := Check(ThisMachine(2), t.TempDir())
	if n := Problems(findings); n > 0 {
		t.Errorf("%d problems in a folder of the test: %v", n, findings)
	}
	if findings := Check(ThisMachine(2), t.TempDir()+"/none"); Problems(findings) != 1 {
		t.Errorf("a folder that is not there is no problem: %v", findings)
	}
}

func TestWrite(t *testing.T) {
	var out strings.Builder
	if err := Write(&out, []Finding{{Check: "a", Level: OK, Text: "fine"}, {Check: "long", Level: Problem, Text: "broken", Do: "mend it"}}); err != nil {
		t.Fatal(err)
	}
	const want = "ok       a     fine\nproblem  long  broken\n               mend it\n"
	if out.String() != want {
		t.Errorf("%q; expected %q", out.String(), want)
	}
}

func TestAccelerators(t *testing.T) {
	m := healthy()
	if gpu, tpu := m.Accelerators(); gpu || tpu {
		t.Errorf("GPU %v, TPU %v; expected none", gpu, tpu)
	}
	with("dev/nvidia0", "")(&m)
	with("dev/accel3", "")(&m)
	if gpu, tpu := m.Accelerators(); !gpu || !tpu {
		t.Errorf("GPU %v, TPU %v; expected both", gpu, tpu)
	}
}
