package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	xpb "github.com/wamuir/graft/tensorflow/tsl/profiler/protobuf/for_profiler_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// traceEvent is an event of Chrome's Trace Event Format. Times are microseconds.
type traceEvent struct {
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Name     string         `json:"name"`
	Start    float64        `json:"ts"`
	Duration float64        `json:"dur,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// chrome returns the timeline in Chrome's Trace Event Format, with gzip: a process per device, a thread per
// row, from the first event on.
func (t *timeline) chrome() ([]byte, error) {
	zero := t.zero()
	var events []traceEvent
	processes := make(map[string]int)
	for i, r := range t.rows {
		device := r.device
		if r.device != goRow {
			device = r.host + " " + r.device
		}
		pid, ok := processes[device]
		if !ok {
			pid = len(processes) + 1
			processes[device] = pid
			events = append(events, traceEvent{Phase: "M", Process: pid, Name: "process_name", Args: map[string]any{"name": device}},
				traceEvent{Phase: "M", Process: pid, Name: "process_sort_index", Args: map[string]any{"sort_index": pid}})
		}
		tid := i + 1
		events = append(events, traceEvent{Phase: "M", Process: pid, Thread: tid, Name: "thread_name", Args: map[string]any{"name": r.name}})
		for _, e := range r.events {
			out := traceEvent{Phase: "X", Process: pid, Thread: tid, Name: e.op, Start: float64(e.start-zero) / 1e3, Duration: float64(e.took) / 1e3}
			if e.node != "" {
				out.Args = map[string]any{"node": e.node}
			}
			events = append(events, out)
		}
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := json.NewEncoder(z).Encode(map[string]any{"displayTimeUnit": "ms", "traceEvents": events})
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

// zero returns when the first event began.
func (t *timeline) zero() int64 {
	var zero int64
	for _, r := range t.rows {
		for _, e := range r.events {
			if zero == 0 || e.start < zero {
				zero = e.start
			}
		}
	}
	return zero
}

// hostPlane is the name of the plane of a host's threads in an XSpace.
const hostPlane = "/host:CPU"

// spaces returns the timeline as serialized XSpaces (tsl/profiler/protobuf/xplane.proto), by host. CPUs and
// this process are lines of the plane of their host, other devices have planes of their own. Operations are
// named "node:Op", as TensorFlow's own profiler names them.
func (t *timeline) spaces() (map[string][]byte, error) {
	spaces := make(map[string]*xpb.XSpace)
	ids := make(map[*xpb.XPlane]map[string]int64) // of names
	for i, r := range t.rows {
		space := spaces[r.host]
		if space == nil {
			space = &xpb.XSpace{Hostnames: []string{r.host}}
			spaces[r.host] = space
		}
		name, line := hostPlane, r.device+" "+r.name
		if r.device != goRow && !strings.HasPrefix(r.device, "CPU:") {
			device, rest, _ := strings.Cut(r.device, "/")
			name, line = "/device:"+device, strings.TrimSpace(rest+" "+r.name)
		}
		at := slices.IndexFunc(space.Planes, func(p *xpb.XPlane) bool { return p.Name == name })
		if at < 0 {
			at = len(space.Planes)
			space.Planes = append(space.Planes, &xpb.XPlane{Id: int64(at), Name: name, EventMetadata: make(map[int64]*xpb.XEventMetadata)})
			ids[space.Planes[at]] = make(map[string]int64)
		}
		plane := space.Planes[at]
		if len(r.events) > 0 {
			plane.Lines = append(plane.Lines, lineOf(int64(i+1), line, r.events, plane, ids[plane]))
		}
	}
	out := make(map[string][]byte, len(spaces))
	for _, host := range slices.Sorted(maps.Keys(spaces)) {
		var err error
		if out[host], err = proto.Marshal(spaces[host]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lineOf returns the line of a row. It adds the names of its events to the plane.
func lineOf(id int64, name string, events []event, plane *xpb.XPlane, ids map[string]int64) *xpb.XLine {
	zero := events[0].start
	for _, e := range events {
		zero = min(zero, e.start)
	}
	line := &xpb.XLine{Id: id, DisplayId: id, Name: name, TimestampNs: zero}
	for _, e := range events {
		called := e.op
		if e.node != "" {
			called = e.node + ":" + e.op
		}
		n, ok := ids[called]
		if !ok {
			n = int64(len(ids) + 1)
			ids[called], plane.EventMetadata[n] = n, &xpb.XEventMetadata{Id: n, Name: called}
		}
		line.Events = append(line.Events, &xpb.XEvent{MetadataId: n, Data: &xpb.XEvent_OffsetPs{OffsetPs: 1000 * (e.start - zero)}, DurationPs: 1000 * e.took})
	}
	return line
}
