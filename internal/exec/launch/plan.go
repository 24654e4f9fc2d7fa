package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/web"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

var (
	precisions = []string{graphs.Float32, graphs.BF16, graphs.FP16}
	logLevels  = []string{"debug", "info", "warn", "error"}
)

// Plan describes the hosts that a run trains on.
type Plan struct {
	// Hosts are the machines, or processes of one machine, that train. The first one is
	// TensorFlow's task 0.
	Hosts []Host `yaml:"hosts"`
	// Strategy is auto, one, mirrored or multiworker. Auto means multiworker, unless the only host
	// is this machine; then gorbit train chooses.
	Strategy string `yaml:"strategy,omitempty"`
	// Precision is the precision that the export must have: float32, bf16 or fp16. "" means any.
	Precision string `yaml:"precision,omitempty"`
	// LogLevel is the log level of the processes.
	LogLevel LogLevel `yaml:"log_level,omitempty"`
}

// Host is a machine, or some of its devices.
type Host struct {
	// Address is the HOST:PORT that its worker listens on. If the only host is this machine, there
	// is no worker and no address is needed.
	Address string `yaml:"address,omitempty"`
	// Devices are "cpu", "gpu", "cpu:2" or "gpu:4". "" means the host's GPUs, or its CPU if it has
	// none.
	Devices string `yaml:"devices,omitempty"`
	// Threads limits the worker's thread pools; 0 means one thread per core.
	Threads int `yaml:"threads,omitempty"`
	// SSH is what ssh takes for the host, such as user@10.0.0.7. If it is set, the worker is started
	// over ssh.
	SSH string `yaml:"ssh,omitempty"`
	// Local says whether the host is this machine. If it is not set, loopback addresses are local.
	Local *bool `yaml:"local,omitempty"`
}

// LogLevel is the lowest level that processes log: debug, info, warn or error. "" means the
// program's default.
type LogLevel struct {
	Chief   string `yaml:"chief,omitempty"`
	Workers string `yaml:"workers,omitempty"`
}

// PlanError reports an invalid plan.
type PlanError struct {
	// Path is the file, or "" for a plan that was not read from one.
	Path string
	Err  error
}

func (e *PlanError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

func (e *PlanError) Unwrap() error { return e.Err }

// maxPlanBytes is the largest size of a plan's file. Each host takes a few lines.
const maxPlanBytes = 4 << 20

// ReadPlan reads a plan from a YAML file. The error is a *PlanError if the file exists but is not
// a valid plan.
func ReadPlan(path string) (Plan, error) {
	text, err := vfs.ReadBounded(path, maxPlanBytes)
	if err != nil {
		return Plan{}, err
	}
	p, err := parse(text)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Plan{}, &PlanError{path, err}
	}
	return p, nil
}

// Write writes the plan to a file, which has the old or the new content after a crash. Without overwrite it
// replaces only what Write wrote.
func (p Plan) Write(ctx context.Context, path string, overwrite bool) error {
	content, err := p.encode()
	if err != nil {
		return err
	}
	f, err := made.Create(path, IsWritten, overwrite)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.End(ctx)
}

func (p Plan) encode() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(p), e.Close())
	return b.Bytes(), err
}

// IsWritten reports whether the content of a file is as Write writes a plan: without comments, and whatever
// else a person adds.
func IsWritten(content []byte) bool {
	p, err := parse(content)
	if err != nil {
		return false
	}
	again, err := p.encode()
	return err == nil && bytes.Equal(content, again)
}

// Validate returns an error that names the host or field at fault.
func (p Plan) Validate() error {
	if len(p.Hosts) == 0 {
		return errors.New("hosts is empty; expected at least one host, such as {address: 127.0.0.1:2222, devices: cpu:2}")
	}
	if p.Strategy != "" && !slices.Contains(devices.Strategies(), p.Strategy) {
		return fmt.Errorf("strategy is %q; %s", p.Strategy, words.OneOf(p.Strategy, devices.Strategies()))
	}
	if p.Precision != "" && !slices.Contains(precisions, p.Precision) {
		return fmt.Errorf("precision is %q; %s", p.Precision, words.OneOf(p.Precision, precisions))
	}
	if err := checkLevel("log_level.chief", p.LogLevel.Chief); err != nil {
		return err
	}
	if err := checkLevel("log_level.workers", p.LogLevel.Workers); err != nil {
		return err
	}
	workers := p.workers()
	if len(p.Hosts) > 1 && (p.Strategy == devices.One || p.Strategy == devices.Mirrored) {
		return fmt.Errorf("strategy is %s, which runs in one process, but %d hosts are given; expected one host, or strategy multiworker", p.Strategy, len(p.Hosts))
	}
	seen := make(map[string]int)
	for i, h := range p.Hosts {
		if err := h.validate(workers); err != nil {
			return fmt.Errorf("hosts[%d]: %w", i, err)
		}
		if j, ok := seen[devices.Canonical(h.Address)]; ok && workers {
			same := h.Address
			if other := p.Hosts[j].Address; other != same {
				same = other + ", which is " + same
			}
			return fmt.Errorf("hosts[%d] and hosts[%d] have the same address %s; expected a different port for each", j, i, same)
		}
		seen[devices.Canonical(h.Address)] = i
	}
	return nil
}

// CheckPrecision returns an error if an export does not compute in the plan's precision. The
// precision of an export cannot be changed.
func (p Plan) CheckPrecision(export *graphs.Export) error {
	if has := export.Contract.Precision; p.Precision != "" && p.Precision != has {
		return fmt.Errorf("precision is %s, but the graph %s computes in %s; export it again with python -m gorbit_export --precision %s, or set precision: %s",
			p.Precision, export.Path, has, p.Precision, has)
	}
	return nil
}

func checkLevel(name, level string) error {
	if level != "" && !slices.Contains(logLevels, level) {
		return fmt.Errorf("%s is %q; %s", name, level, words.OneOf(level, logLevels))
	}
	return nil
}

func (h Host) validate(worker bool) error {
	if worker || h.Address != "" {
		if err := checkAddress(h.Address); err != nil {
			return err
		}
	}
	if h.Devices != "" {
		if _, err := devices.Parse(h.Devices); err != nil {
			return err
		}
	}
	if h.SSH != "" && (h.Local != nil && *h.Local || strings.HasPrefix(h.SSH, "-") || strings.ContainsAny(h.SSH, " \t\n")) {
		return fmt.Errorf("ssh is %q; expected the name of another machine, such as user@10.0.0.7, and not local: true", h.SSH)
	}
	if h.Threads < 0 {
		return fmt.Errorf("threads is %d; expected 0 or more", h.Threads)
	}
	return nil
}

func checkAddress(address string) error {
	if err := devices.CheckAddress(address); err != nil {
		return err
	}
	// Other machines must reach it by this name, and lists of workers are split at commas.
	if strings.ContainsAny(address, ", \t\n/=") || address[0] == '-' {
		return fmt.Errorf("address is %q; expected a host that other machines can reach", address)
	}
	return nil
}

// local reports whether the host is this machine.
func (h Host) local() bool {
	if h.Local != nil {
		return *h.Local
	}
	if h.SSH != "" {
		return false
	}
	host, _, err := net.SplitHostPort(h.Address)
	if err != nil {
		return h.Address == ""
	}
	return web.IsLoopback(host)
}

// OneMachine reports whether the hosts run workers and all of them are this machine.
func (p Plan) OneMachine() bool {
	return p.workers() && !slices.ContainsFunc(p.Hosts, func(h Host) bool { return !h.local() })
}

// workers reports whether the hosts run workers, rather than being the chief itself.
func (p Plan) workers() bool {
	return p.Strategy == devices.MultiWorker || len(p.Hosts) > 1 || len(p.Hosts) == 1 && !p.Hosts[0].local()
}
