package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestLaunchTrains launches trainings with two workers: one that runs to its end, with a worker that
// is started over ssh, and one whose worker is killed and must not be restarted.
func TestLaunchTrains(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.fixture(100)

	// The last argument of ssh is the command, which it gives to the shell of a host that has gorbit.
	ssh := fakes(t, map[string]string{"ssh": `exec sh -c "${@: -1}"`})
	// launch launches a training with two workers and returns their addresses.
	launch := func(t *testing.T, run, second string, steps int, more ...string) (r *running, addresses []string) {
		t.Helper()
		addresses = freeAddresses(t, 2)
		plan := fmt.Sprintf("hosts:\n  - {address: %q, devices: cpu, threads: 1}\n  - {address: %q, devices: cpu, threads: 1%s}\nprecision: float32\n", addresses[0], addresses[1], second)
		if err := os.WriteFile(filepath.Join(u.dir, run+".yaml"), []byte(plan), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"launch", "--config", run + ".yaml"}, more...)
		cmd := u.command("gorbit", append(args, "--", "--graph", "graph", "--data", "data", "--run", run, "--steps", fmt.Sprint(steps),
			"--batch-size", "13", "--steps-per-loop", "10", "--checkpoint-interval", fmt.Sprint(steps), "--eval-interval", "-2")...)
		cmd.Env = append(cmd.Env, "PATH="+ssh+":"+os.Getenv("PATH"))
		r = begin(t, cmd)
		t.Cleanup(func() {
			for pid := range marked(t) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		return r, addresses
	}

	t.Run("to the end", func(t *testing.T) {
		r, addresses := launch(t, "whole", ", ssh: me@there", 30)
		r.exits(fault.ExitDone)
		gone(t, "")
		said := r.out.String()
		if strings.Contains(said, "no authentication") {
			t.Errorf("a worker is not locked:\n%s", said)
		}
		for i, address := range addresses {
			if !strings.Contains(said, fmt.Sprintf("[worker %d] listening on %s with cpu", i, address)) || !strings.Contains(said, " "+address+"/device:CPU:0 ") {
				t.Errorf("worker %d at %s did not take part:\n%s", i, address, said)
			}
		}
		if falling := losses(t, said); len(falling) != 3 || !(falling[2] < falling[0]) {
			t.Errorf("the losses are %v", falling)
		}
		if tensors, _ := u.state("whole", 30); len(tensors) == 0 {
			t.Error("the last checkpoint is empty")
		}
	})
	t.Run("a worker killed", func(t *testing.T) {
		r, addresses := launch(t, "killed", "", 1_000_000, "--max-restarts", "0")
		r.says("step:     20 ")
		if said := r.out.String(); strings.Count(said, " with cpu, by a socket in ") != 2 {
			t.Errorf("the workers have ports:\n%s", said)
		}
		killed := false
		for pid, arguments := range marked(t) {
			if at := slices.Index(arguments, "--listen"); slices.Contains(arguments, "worker") && at >= 0 && arguments[at+1] == addresses[1] {
				killed = syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		if !killed {
			t.Fatalf("no worker at %s among %v", addresses[1], marked(t))
		}
		r.exits(fault.ExitFailed)
		gone(t, "")
		_, rest, _ := strings.Cut(r.out.String(), "by a socket in ")
		if folder, _, _ := strings.Cut(rest, "\n"); !filepath.IsAbs(folder) {
			t.Errorf("no folder of sockets: %q", folder)
		} else if _, err := os.Stat(folder); err == nil {
			t.Errorf("the folder %s is left", folder)
		}
		if said := r.out.String(); !strings.Contains(said, "gorbit: worker 1 at "+addresses[1]+" ended with signal SIGKILL") || strings.Contains(said, "restarting it") {
			t.Errorf("the last line does not name the worker:\n%s", said)
		}
	})
}
