package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train"
)

func deployFile(name string) string { return filepath.Join(testkit.Root(), "deploy", name) }

// fakes writes programs for PATH that stand in for a cluster's, and returns their folder.
func fakes(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\nset -eu\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell runs a command with a folder first on PATH, and returns its output and exit code.
func shell(t *testing.T, path string, env []string, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := testkit.Command(t, program, args...)
	cmd.Env = append(os.Environ(), append(env, "PATH="+path+":"+os.Getenv("PATH"))...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestWithTFConfig(t *testing.T) {
	script := deployFile("with-tf-config.sh")
	out, errs, code := shell(t, "", nil, script, "1", "2222", "node-a", "10.0.0.3", "--", "printenv", "TF_CONFIG")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	config, err := train.ParseTFConfig(out)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := []string{"node-a:2222", "10.0.0.3:2222"}; !slices.Equal(config.Workers, want) || config.Task != 1 {
		t.Errorf("process %d of %q; expected 1 of %q", config.Task, config.Workers, want)
	}
	// The command's own arguments come through as they are, and so does its exit code.
	if out, _, code := shell(t, "", nil, script, "0", "1", "a", "--", "sh", "-c", `printf '%s|' "$@"; exit 75`, "sh", "a b", "--", "*"); out != "a b|--|*|" || code != 75 {
		t.Errorf("%q, exit code %d", out, code)
	}
	for _, args := range [][]string{
		{}, {"0"}, {"x", "2222", "a", "--", "true"}, {"0", "x", "a", "--", "true"}, {"1", "2222", "a", "--", "true"},
		{"0", "2222", "a"}, {"0", "2222", "a", "--"}, {"0", "2222", "--", "true"}, {"0", "2222", `a"`, "--", "true"}, {"0", "2222", "a b", "--", "true"},
	} {
		if _, errs, code := shell(t, "", nil, script, args...); code != 2 || !strings.HasPrefix(errs, "with-tf-config: ") {
			t.Errorf("%q: exit code %d, %q; expected 2 and a sentence", args, code, errs)
		}
	}
}

// TestSlurm runs the batch file with stand-ins for Slurm's programs: srun starts one process after
// the other, each with its number.
func TestSlurm(t *testing.T) {
	fake := fakes(t, map[string]string{
		"scontrol": `case "$2" in hostnames) printf 'n1\nn2\n' ;; *) echo "scontrol $*" ;; esac`,
		"srun":     `shift; code=0; for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@" || code=$?; done; exit $code`,
		"gorbit":   `echo "$TF_CONFIG"; printf '%s|' "$@"; echo; stat -c %a:%s "$GORBIT_TOKEN_FILE"; exit "$CODE"`,
	})
	env := []string{"SLURM_JOB_ID=123456", "SLURM_JOB_NODELIST=n[1-2]", "GORBIT_DEPLOY=" + deployFile(""), "CODE=0", "GORBIT_TOKEN_FILE=", "HOME=" + t.TempDir()}
	out, errs, code := shell(t, fake, env, "bash", deployFile("slurm/train.sbatch"), "--graph", "a b", "--epochs", "3")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 {
		t.Fatalf("%q", out)
	}
	for i := range 2 {
		config, err := train.ParseTFConfig(lines[3*i])
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"n1:23456", "n2:23456"}; !slices.Equal(config.Workers, want) || config.Task != i {
			t.Errorf("process %d of %q; expected %d of %q", config.Task, config.Workers, i, want)
		}
		if want := "train|--graph|a b|--epochs|3|"; lines[3*i+1] != want {
			t.Errorf("arguments are %q; expected %q", lines[3*i+1], want)
		}
		if want := "600:64"; lines[3*i+2] != want { // hexadecimal digits
			t.Errorf("the token has mode and size %s; expected %s", lines[3*i+2], want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(strings.TrimPrefix(env[5], "HOME="), ".*token*")); err != nil || len(left) > 0 {
		t.Errorf("the token is left: %v, %v", left, err)
	}
	env[3] = "CODE=75"
	if out, _, code := shell(t, fake, env, "bash", deployFile("slurm/train.sbatch")); code != 75 || !strings.Contains(out, "scontrol requeue 123456") {
		t.Errorf("a run that was stopped: exit code %d, %q; expected 75 and to be queued again", code, out)
	}
	env[3] = "CODE=3"
	if out, _, code := shell(t, fake, env, "bash", deployFile("slurm/train.sbatch")); code != 3 || strings.Contains(out, "requeue") {
		t.Errorf("damaged data: exit code %d, %q; expected 3 and not to be queued again", code, out)
	}
	env[2] = "GORBIT_DEPLOY=/none"
	if _, errs, code := shell(t, fake, env, "bash", deployFile("slurm/train.sbatch")); code != 2 || !strings.Contains(errs, "GORBIT_DEPLOY") {
		t.Errorf("without with-tf-config.sh: exit code %d, %q", code, errs)
	}
}

// TestKubernetes runs the command of the job's container as its second pod, and checks that what
// belongs together has the same names.
func TestKubernetes(t *testing.T) {
	content, err := os.ReadFile(deployFile("kubernetes/train.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			CompletionMode           string `yaml:"completionMode"`
			Completions, Parallelism int
			ClusterIP                string `yaml:"clusterIP"`
			Template                 struct {
				Spec struct {
					Subdomain  string
					Containers []struct {
						Name          string
						Command, Args []string
						Env           []struct{ Name, Value string }
						VolumeMounts  []struct {
							Name      string
							MountPath string `yaml:"mountPath"`
						} `yaml:"volumeMounts"`
					}
					Volumes []struct {
						Name   string
						Secret struct {
							Name string `yaml:"secretName"`
							Mode int    `yaml:"defaultMode"`
						}
					}
				}
			}
		}
	}
	found := make(map[string]object)
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var o object
		if err := d.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found[o.Kind] = o
	}
	job, service := found["Job"], found["Service"]
	if service.Spec.ClusterIP != "None" || service.Metadata.Name != job.Spec.Template.Spec.Subdomain || job.Spec.CompletionMode != "Indexed" {
		t.Fatalf("pods have no names of their own: %+v", found)
	}
	if _, ok := found["NetworkPolicy"]; !ok {
		t.Error("nothing keeps other pods from the workers")
	}
	pod := job.Spec.Template.Spec.Containers[0]
	secret := job.Spec.Template.Spec.Volumes[len(job.Spec.Template.Spec.Volumes)-1]
	mount := pod.VolumeMounts[len(pod.VolumeMounts)-1]
	if secret.Secret.Name == "" || secret.Secret.Mode != 0o440 || mount.Name != secret.Name || len(pod.Env) != 1 ||
		pod.Env[0].Name != tokenVariable || pod.Env[0].Value != mount.MountPath+"/token" {
		t.Errorf("the token %+v is not in the secret %+v, mounted as %+v", pod.Env, secret, mount)
	}
	command := strings.ReplaceAll(pod.Args[0], "/usr/local/share/doc/gorbit/deploy", deployFile(""))
	fake := fakes(t, map[string]string{"gorbit": `echo "$TF_CONFIG"; printf '%s|' "$@"`})
	out, errs, code := shell(t, fake, []string{"JOB_COMPLETION_INDEX=1"}, pod.Command[0], pod.Command[1], command)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	first, second, _ := strings.Cut(out, "\n")
	config, err := train.ParseTFConfig(first)
	if err != nil {
		t.Fatal(err)
	}
	name := job.Metadata.Name
	if want := []string{name + "-0." + name + ":2222", name + "-1." + name + ":2222"}; !slices.Equal(config.Workers, want) || config.Task != 1 {
		t.Errorf("process %d of %q; expected 1 of %q", config.Task, config.Workers, want)
	}
	if job.Spec.Completions != len(config.Workers) || job.Spec.Parallelism != len(config.Workers) {
		t.Errorf("%d pods, %d at a time, for %d workers", job.Spec.Completions, job.Spec.Parallelism, len(config.Workers))
	}
	checkCommandLine(t, strings.Split(strings.TrimSuffix(second, "|"), "|"))
}

// TestUnits checks that systemd would start commands that gorbit knows.
func TestUnits(t *testing.T) {
	for _, name := range []string{"gorbit-train@.service", "gorbit-worker.service"} {
		content, err := os.ReadFile(deployFile("systemd/" + name))
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(content), "\nExecStart=")
		if !ok {
			t.Fatalf("%s starts nothing", name)
		}
		line, _, _ := strings.Cut(after, "\n")
		fields := strings.Fields(line)
		if fields[0] != "/usr/local/bin/gorbit" {
			t.Errorf("%s starts %s", name, fields[0])
		}
		checkCommandLine(t, fields[1:])
	}
}

// checkCommandLine checks that the arguments are a command of gorbit's with flags that it knows.
func checkCommandLine(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}
