package main

import (
	"strings"
	"testing"
)

func TestOneLine(t *testing.T) {
	for _, test := range []struct{ message, want string }{
		{"one sentence", "one sentence"},
		{"training step: indices[512] = 512 is not in [0, 512)\n\t [[{{node GatherV2_1}}]]", "training step: indices[512] = 512 is not in [0, 512)"},
		{"first\nsecond\n", "first; second"},
	} {
		if got := oneLine(test.message); got != test.want {
			t.Errorf("oneLine(%q) is %q, want %q", test.message, got, test.want)
		}
	}
}

// TestWithoutTensorFlow holds that commands that need no TensorFlow do not load it, which would take
// them ten times as long. The dynamic linker tells what it loads.
func TestWithoutTensorFlow(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.write(40)
	for _, line := range []string{
		"--help",
		"train --help",
		"__complete train --sched",
		"train --learing-rate 1e-4",
		"convert --vocab vocab.txt --train reviews.tsv --text-column text --label-column label --labels bad,good --max-length 24 --out data",
		"train --graph nowhere --data data --run run",
		"runs .",
		"report --run nowhere",
	} {
		cmd := u.command("gorbit", strings.Fields(line)...)
		cmd.Env = append(cmd.Env, "LD_DEBUG=files")
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), "libc.so") {
			t.Fatalf("%s: the dynamic linker says nothing:\n%s", line, out)
		}
		if strings.Contains(string(out), "libtensorflow") {
			t.Errorf("gorbit %s loads TensorFlow", line)
		}
	}
	cmd := u.command("gorbit", "version")
	cmd.Env = append(cmd.Env, "LD_DEBUG=files")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "libtensorflow_cc") {
		t.Errorf("gorbit version: %v\n%s", err, out)
	}
}
