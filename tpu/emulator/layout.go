package emulator

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
	"github.com/gorbit-ml/gorbit/tpu"
)

// maxCores is the greatest number of cores to emulate: each is a device of the server behind.
const maxCores = 512

// Types of devices.
const (
	typeCPU      = "CPU"
	typeCore     = "TPU"
	typeSystem   = "TPU_SYSTEM"
	typeReplica  = "TPU_REPLICATED_CORE"
	typeEmulator = tpu.EmulatorDevice
)

// ParseTopology returns the topology of a whole mesh, written as the sizes of its axes x, y,
// z and core ("2x2x1x2"), whose chips so many hosts share evenly. The cores of a chip come
// first, then x, y and z.
func ParseTopology(mesh string, hosts int) (*tpu.Topology, error) {
	bad := func(reason string) (*tpu.Topology, error) {
		return nil, fault.Usagef("topology %q: %s; expected XxYxZxCORES, such as 2x2x1x2 for 4 chips of 2 cores", mesh, reason)
	}
	var at tpu.Coordinate
	sizes := strings.Split(mesh, "x")
	if len(sizes) != len(at) {
		return bad(fmt.Sprintf("%d sizes", len(sizes)))
	}
	cores := 1
	for axis, text := range sizes {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 || size > maxCores {
			return bad(fmt.Sprintf("the size %q is not a number from 1 to %d", text, maxCores))
		}
		at[axis] = int32(size)
		if cores *= size; cores > maxCores {
			return bad(fmt.Sprintf("more than %d cores", maxCores))
		}
	}
	if chips := cores / int(at[3]); hosts < 1 || chips%hosts != 0 {
		return nil, fault.Usagef("%d hosts cannot share the %d chips of the topology %s evenly; expected a divisor of %d", hosts, chips, mesh, chips)
	}
	coordinates := make([]tpu.Coordinate, 0, cores)
	for z := range at[2] {
		for y := range at[1] {
			for x := range at[0] {
				for core := range at[3] {
					coordinates = append(coordinates, tpu.Coordinate{x, y, z, core})
				}
			}
		}
	}
	return tpu.NewTopology(at, hosts, coordinates)
}

// layout says which device of the servers behind stands for which device of the emulated
// cluster. The CPU devices of a server are the host and the cores of its task or, if it is the only
// one, of the first task, then of the second.
type layout struct {
	job          string
	hosts, cores int  // cores of each host
	apart        bool // each host has a server
}

// cpus is the number of CPU devices of a server behind.
func (l layout) cpus() int {
	if l.apart {
		return 1 + l.cores
	}
	return l.hosts * (1 + l.cores)
}

// task is the prefix of the names of a task's devices.
func (l layout) task(i int) string { return fmt.Sprintf("/job:%s/replica:0/task:%d", l.job, i) }

// devices lists the devices of the emulated cluster, of many only the first.
func (l layout) devices() string {
	const most = 4
	var out []string
	for task := range l.hosts {
		out = append(out, fmt.Sprintf("%s/device:CPU:0, %s/device:%s:0", l.task(task), l.task(task), typeSystem))
		for core := range l.cores {
			out = append(out, fmt.Sprintf("%s/device:%s:%d", l.task(task), typeCore, core))
		}
	}
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("... %s:%d", typeCore, l.cores-1))
	}
	return strings.Join(out, ", ")
}

// behind translates a device as a node names it, in full or in part, to one of the server
// behind.
func (l layout) behind(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	task, kind, id := 0, "", 0
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
		key, value, _ := strings.Cut(part, ":")
		var err error
		switch key {
		case "job":
			if value != l.job {
				err = fmt.Errorf("there is no job %q; expected %q", value, l.job)
			}
		case "replica":
			if value != "0" {
				err = fmt.Errorf("there is no replica %q; expected 0", value)
			}
		case "task":
			task, err = number(value, l.hosts, "task")
		case "cpu", "CPU":
			kind = typeCPU
			id, err = number(value, 1, typeCPU)
		case "device":
			var of string
			kind, of, _ = strings.Cut(value, ":")
			switch kind {
			case typeCPU, typeSystem:
				id, err = number(of, 1, kind)
			case typeCore:
				id, err = number(of, l.cores, kind)
			case typeReplica:
			default:
				err = fmt.Errorf("there is no device of type %q; expected CPU, TPU or TPU_SYSTEM", kind)
			}
		default:
			err = fmt.Errorf("%q is not a part of a device's name; expected parts such as job:worker and device:CPU:0", part)
		}
		if err != nil {
			return "", fmt.Errorf("device %q: %w", name, err)
		}
	}
	if kind == typeReplica {
		return "", nil
	}
	cpu, server := task*(1+l.cores), 0
	if l.apart {
		cpu, server = 0, task
	}
	if kind == typeCore {
		cpu += 1 + id
	}
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:CPU:%d", tfserver.Job, server, cpu), nil
}

// number reads the number of a task or a device, of which there are so many. "" and "*"
// stand for the first.
func number(text string, of int, kind string) (int, error) {
	if text == "" || text == "*" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= of {
		return 0, fmt.Errorf("there is no %s %q; expected 0 to %d", kind, text, of-1)
	}
	return n, nil
}
