package tpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/tfsession"
)

// DefaultStartTimeout is how long a TPU may take to be configured, if a SystemConfig does not
// say.
const DefaultStartTimeout = 5 * time.Minute

// EmulatorDevice is the type of a device that gorbit tpu-emulator shows and no TPU has.
const EmulatorDevice = "TPU_EMULATOR"

// SystemConfig says how to start a TPU.
type SystemConfig struct {
	// Timeout is the time for the whole start; 0 is DefaultStartTimeout.
	Timeout time.Duration
	// Log takes a line for each phase; nil is none.
	Log *slog.Logger
}

// Validate returns an error that names the field at fault.
func (c SystemConfig) Validate() error {
	if c.Timeout < 0 {
		return fault.Usagef("TPU timeout %v: expected 0 (%v) or more", c.Timeout, DefaultStartTimeout)
	}
	return nil
}

// System is a TPU that is configured: its cores know each other, and programs can be sent to
// them. There is one at a time for each TPU. Its methods may be called one at a time.
type System struct {
	// Job is the name of the TensorFlow job that the TPU's tasks are.
	Job string
	// Topology is what the TPU says of itself.
	Topology *Topology
	// Emulated is true if it is gorbit tpu-emulator, which has no TPU.
	Emulated bool

	peer    string
	target  string
	address string          // of the first task; "" if it is this process
	others  []string        // addresses of the other tasks, which the first one calls
	cluster *cpb.ClusterDef // that the session names, if any
	timeout time.Duration
	log     *slog.Logger
	graph   *tf.Graph
	session *tfsession.Session
}

// Start connects to a cluster that a Resolver found, finds the TPU among the devices that the
// cluster shows, configures it, and checks that its topology is that of the devices.
// Configuring ends whatever runs on the TPU.
//
// The error is a *SystemError, which says what failed and what to do about it.
func Start(ctx context.Context, cluster Cluster, c SystemConfig) (_ *System, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &System{
		peer:    cmp.Or(cluster.Master(), "local"),
		timeout: cmp.Or(c.Timeout, DefaultStartTimeout),
		log:     cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		graph:   tf.NewGraph(),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTooLate)
	defer cancel()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if !cluster.Local {
		if len(cluster.Workers) == 0 {
			return nil, s.failed(PhaseConnect, errors.New("the cluster has no workers"))
		}
		s.address, s.others = cluster.Workers[0], cluster.Workers[1:]
		if err := probe(ctx, s.address); err != nil {
			return nil, s.failed(PhaseConnect, err)
		}
	}
	if err := s.open(cluster, true); err != nil {
		return nil, s.failed(PhaseConnect, err)
	}
	shown, err := s.devices(ctx, max(1, len(cluster.Workers)))
	if err != nil && strings.Contains(err.Error(), ownCluster) {
		s.log.Info("the TPU's server has a cluster of its own, which is taken as it is", "tpu", s.peer)
		s.close()
		if err := s.open(cluster, false); err != nil {
			return nil, s.failed(PhaseConnect, err)
		}
		shown, err = s.devices(ctx, max(1, len(cluster.Workers)))
	}
	if err != nil {
		return nil, s.failed(PhaseDevices, err)
	}
	s.Job, s.Emulated = shown.job, shown.emulated
	if s.Emulated {
		s.log.Warn("this is gorbit tpu-emulator and no TPU", "tpu", s.peer)
	}
	s.log.Info("configuring the TPU", "tpu", s.peer, "job", s.Job, "tasks", shown.tasks, "cores", shown.tasks*shown.cores)
	serialized, err := s.configure(ctx)
	if err != nil {
		return nil, s.failed(PhaseConfigure, err)
	}
	if s.Topology, err = ParseTopology(serialized); err != nil {
		return nil, s.failed(PhaseTopology, err)
	}
	if t := s.Topology; t.Tasks != shown.tasks || t.DevicesPerTask != shown.cores {
		return nil, s.failed(PhaseTopology, fmt.Errorf("the topology has %d tasks with %d cores each; expected %d tasks with %d cores each, the devices that are shown",
			t.Tasks, t.DevicesPerTask, shown.tasks, shown.cores))
	}
	return s, nil
}

// Peer is the address of the TPU in messages.
func (s *System) Peer() string { return s.peer }

// NewSession makes a session with the TPU that runs a graph, whose variables are its own and end with
// it. The library asks the TPU at the first call. Config may be nil.
func (s *System) NewSession(graph *tf.Graph, config *cpb.ConfigProto) (*tf.Session, error) {
	own := new(cpb.ConfigProto)
	if config != nil {
		own = proto.CloneOf(config)
	}
	own.ClusterDef, own.IsolateSessionState = s.cluster, true
	serialized, err := proto.Marshal(own)
	if err != nil {
		return nil, err
	}
	return tf.NewSession(graph, &tf.SessionOptions{Target: s.target, Config: serialized})
}

// Probe finds out whether the TPU's server still takes connections. TensorFlow's own client does not
// say when it is gone: it tries again without an end.
func (s *System) Probe(ctx context.Context) error {
	if s.address == "" { // in this process
		return nil
	}
	return probe(ctx, s.address)
}

// Shutdown ends the TPU's system and the session. It is to be called once.
func (s *System) Shutdown(ctx context.Context) error {
	defer s.close()
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTooLate)
	defer cancel()
	op, err := s.graph.AddOperation(tf.OpSpec{Type: "ShutdownDistributedTPU", Name: "shutdown", Device: s.device()})
	if err == nil {
		_, err = s.session.Run(ctx, nil, nil, []*tf.Operation{op})
	}
	if err != nil {
		return s.failed(PhaseShutdown, err)
	}
	return nil
}

// device is where the operations for the whole TPU go.
func (s *System) device() string { return "/job:" + s.Job + "/device:TPU_SYSTEM:0" }

// ownCluster is in the answer of TensorFlow's server to a session that names a cluster, if the
// server was started as the same task of the same job.
const ownCluster = "same names that were provided when the server booted"

// open makes the session, which may name the cluster. The library asks the cluster at the
// first call.
func (s *System) open(cluster Cluster, named bool) error {
	// A call that is given up ends a little later.
	config := &cpb.ConfigProto{OperationTimeoutInMs: (s.timeout + graceTimeout).Milliseconds()}
	if named && !cluster.Local {
		tasks := make(map[int32]string, len(cluster.Workers))
		for i, address := range cluster.Workers {
			tasks[int32(i)] = address
		}
		config.ClusterDef = &cpb.ClusterDef{Job: []*cpb.JobDef{{Name: cluster.Job, Tasks: tasks}}}
	}
	s.target, s.cluster = cluster.Master(), config.ClusterDef
	serialized, err := proto.Marshal(config)
	if err != nil {
		return err
	}
	session, err := tf.NewSession(s.graph, &tf.SessionOptions{Target: cluster.Master(), Config: serialized})
	if err != nil {
		return err
	}
	s.session = tfsession.New(session, tfsession.Config{Peer: s.peer, Log: s.log})
	return nil
}

func (s *System) configure(ctx context.Context) ([]byte, error) {
	op, err := s.graph.AddOperation(configureOp(s.device()))
	if err != nil {
		return nil, err
	}
	out, err := s.session.Run(ctx, nil, []tf.Output{op.Output(0)}, nil)
	if err != nil {
		return nil, err
	}
	topology, ok := out[0].Value().(string)
	if !ok {
		return nil, fmt.Errorf("ConfigureDistributedTPU answers a %T; expected a string", out[0].Value())
	}
	return []byte(topology), nil
}

// configureOp is the operation that configures a TPU, with the options of TensorFlow 2's
// initialize_tpu_system: a program that does not compile, and a call that is cancelled, leave the
// chips open. Without them the chips are closed, and the TPU must be started again.
func configureOp(device string) tf.OpSpec {
	const keepOpen = 2 // TPUCancellationClosesChips; 0 is what the server was started with, 1 closes them
	return tf.OpSpec{Type: "ConfigureDistributedTPU", Name: "configure", Device: device, Attrs: map[string]any{
		"compilation_failure_closes_chips": false,
		"tpu_cancellation_closes_chips":    int64(keepOpen),
	}}
}

// close ends the session.
func (s *System) close() {
	if s.session == nil {
		return
	}
	// A server that does not answer is not waited for: there is nothing left to lose.
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.session.Close(ctx); err != nil {
		s.log.Debug("the session with the TPU was not closed", "tpu", s.peer, "error", err)
	}
}

// closeTimeout is how long the end of a session is waited for. graceTimeout is for answers that only
// tell more about a call that got none.
const (
	closeTimeout = 5 * time.Second
	graceTimeout = 2 * time.Second
)

// shown is the TPU among the devices of a cluster.
type shown struct {
	job          string
	tasks, cores int // cores of each task
	emulated     bool
}

var deviceName = regexp.MustCompile(`^/job:([^/]+)/replica:0/task:(\d+)/device:(\w+):(\d+)$`)

// devices asks which devices there are. So many tasks were named.
func (s *System) devices(ctx context.Context, tasks int) (shown, error) {
	list, err := s.session.ListDevices(ctx)
	if err != nil {
		return shown{}, err
	}
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Name
	}
	found, err := tpuAmong(names)
	if err == nil && found.tasks != tasks {
		err = fmt.Errorf("the TPU has %d tasks, and %d addresses are given; expected an address for each task", found.tasks, tasks)
	}
	return found, err
}

// tpuAmong finds the one TPU among devices.
func tpuAmong(names []string) (shown, error) {
	var found shown
	systems, cores := make(map[int]bool), make(map[int]map[int]bool)
	for _, name := range names {
		m := deviceName.FindStringSubmatch(name)
		if m == nil || m[3] != "TPU_SYSTEM" && m[3] != "TPU" && m[3] != EmulatorDevice {
			continue
		}
		if found.job != "" && m[1] != found.job {
			return found, fmt.Errorf("the jobs %s and %s both have TPUs; expected one job", found.job, m[1])
		}
		found.job = m[1]
		task, err := strconv.Atoi(m[2])
		if err != nil {
			return found, err
		}
		id, err := strconv.Atoi(m[4])
		if err != nil {
			return found, err
		}
		switch m[3] {
		case EmulatorDevice:
			found.emulated = true
		case "TPU_SYSTEM":
			systems[task] = true
		default:
			if cores[task] == nil {
				cores[task] = make(map[int]bool)
			}
			cores[task][id] = true
		}
	}
	if len(cores) == 0 || len(systems) == 0 {
		return found, &NoTPUError{Devices: names}
	}
	found.tasks, found.cores = len(systems), len(cores[0])
	for task := range found.tasks {
		if !systems[task] {
			return found, fmt.Errorf("task %d has no device TPU_SYSTEM:0; expected one in each of %d tasks", task, found.tasks)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(cores)) {
		if !systems[task] || len(cores[task]) != found.cores {
			return found, fmt.Errorf("task %d has %d cores; expected %d, as task 0", task, len(cores[task]), found.cores)
		}
	}
	if len(cores) != found.tasks {
		return found, fmt.Errorf("%d of %d tasks have cores; expected all", len(cores), found.tasks)
	}
	return found, nil
}
