package record

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	sspb "github.com/wamuir/graft/tensorflow/core/framework/step_stats_go_proto"

	"github.com/gorbit-ml/gorbit/strategy"
)

// timeline is what ran in some updates, by row: of a device, or of this process.
type timeline struct{ rows []*row }

// row is a line of a timeline: a thread or, where it is not known, operations one after the other. Its events
// begin in order, and one that begins within another one ends in it.
type row struct {
	host   string // whose clock it is by, for file names
	device string // such as "CPU:0"; "gorbit" is this process
	name   string // of the thread
	events []event
}

// event is an operation that ran, or what this process did.
type event struct {
	op, node    string // node is "" if it is no operation
	start, took int64  // ns since 1970, ns
}

func (e event) end() int64 { return e.start + e.took }

// event returns the event of a span, by the clock of the system, as operations have it.
func (s span) event() event {
	start := s.began.UnixNano()
	return event{op: s.name, start: start, took: max(0, s.ended.UnixNano()-start)}
}

// goRow is the device of the row of this process.
const goRow = "gorbit"

// timelineOf lays out traced calls and what this process did around them.
func timelineOf(calls []strategy.TracedCall, spans []span) *timeline {
	own := &row{host: hostName(), device: goRow, name: "loop"}
	sessions := &row{host: own.host, device: goRow, name: "calls of TensorFlow"}
	for _, s := range spans {
		own.events = append(own.events, s.event())
	}
	threads := make(map[string]map[uint32][]event)
	for _, c := range calls {
		sessions.events = append(sessions.events, span{"call", c.Began, c.Ended}.event())
		for _, d := range c.Stats.GetDevStats() {
			if threads[d.GetDevice()] == nil {
				threads[d.GetDevice()] = make(map[uint32][]event)
			}
			for _, n := range d.GetNodeStats() {
				threads[d.GetDevice()][n.GetThreadId()] = append(threads[d.GetDevice()][n.GetThreadId()], eventOf(n))
			}
		}
	}
	t := &timeline{rows: []*row{own, sessions}}
	for device, of := range threads {
		host, name := placeOf(device)
		for thread, events := range of {
			for i, lane := range lanes(events, thread != 0) {
				label := "operations" // TensorFlow does not say the thread on CPUs
				if thread != 0 {
					label = fmt.Sprintf("thread %d", thread)
				}
				if i > 0 {
					label += fmt.Sprintf(" (%d)", i+1)
				}
				t.rows = append(t.rows, &row{host: host, device: name, name: label, events: lane})
			}
		}
	}
	slices.SortStableFunc(t.rows[2:], func(a, b *row) int {
		return cmp.Or(strings.Compare(a.host, b.host), strings.Compare(a.device, b.device), cmp.Compare(a.events[0].start, b.events[0].start))
	})
	return t
}

// labelled matches the operation in a label of TensorFlow's, "node = Op(inputs)", in front of which may be
// the memory that it took.
var labelled = regexp.MustCompile(`\S+ = (\w+)\(`)

func eventOf(n *sspb.NodeExecStats) event {
	e := event{op: "other", node: n.GetNodeName(), start: n.GetAllStartNanos(), took: n.GetAllEndRelNanos()}
	if e.start == 0 { // a device that has only these
		e.start, e.took = 1000*n.GetAllStartMicros(), 1000*n.GetAllEndRelMicros()
	}
	if m := labelled.FindStringSubmatch(n.GetTimelineLabel()); m != nil {
		e.op = m[1]
	} else if i := strings.LastIndexByte(e.node, ':'); i >= 0 {
		e.op = e.node[i+1:]
	}
	return e
}

// placeOf returns the host of a device, for file names, and its short name.
func placeOf(device string) (host, name string) {
	job, name, ok := strings.Cut(device, "/device:")
	if !ok {
		job, name = "", strings.TrimPrefix(device, "/")
	}
	host = strings.Trim(strings.NewReplacer("/job:", "", "/replica:0", "", "/task:", "_", "/", "_").Replace(job), "_")
	if host == "" || strings.HasPrefix(host, "localhost") {
		host = hostName()
	}
	return host, name
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsRune(host, filepath.Separator) {
		return "localhost"
	}
	return host
}

// lanes divides events into as few rows as they need so that none overlap or, with nest, so that one that
// begins within another one ends in it.
func lanes(events []event, nest bool) [][]event {
	// The longer one first, as it is around the other.
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.took, a.took)) })
	var out [][]event
	var open [][]int64 // ends of the events that have begun, by lane, outermost first
	for _, e := range events {
		at := slices.IndexFunc(open, func(ends []int64) bool {
			i := slices.IndexFunc(ends, func(end int64) bool { return end <= e.start })
			if i < 0 {
				i = len(ends)
			}
			return i == 0 || nest && ends[i-1] >= e.end()
		})
		if at < 0 {
			at, out, open = len(out), append(out, nil), append(open, nil)
		}
		for n := len(open[at]); n > 0 && open[at][n-1] <= e.start; n-- {
			open[at] = open[at][:n-1]
		}
		out[at], open[at] = append(out[at], e), append(open[at], e.end())
	}
	return out
}

// around are operations that take as long as others that they call or wait for.
var around = map[string]bool{
	"StatefulPartitionedCall": true, "PartitionedCall": true, "While": true, "StatelessWhile": true, "If": true, "StatelessIf": true,
	"Case": true, "StatelessCase": true, "_Recv": true, "_HostRecv": true, "RecvTensor": true,
}

// cost is what the operations of a type took together.
type cost struct {
	op    string
	count int
	took  int64 // ns
}

// costs returns what the operations took, by type, the costliest first. What is around others, or waits
// for other devices, is left out.
func (t *timeline) costs() (out []cost, total int64) {
	at := make(map[string]int)
	for _, r := range t.rows {
		if r.device == goRow || strings.Contains(r.device, "stream") { // streams have kernels, not operations
			continue
		}
		for _, e := range r.events {
			if around[e.op] {
				continue
			}
			i, ok := at[e.op]
			if !ok {
				i = len(out)
				at[e.op], out = i, append(out, cost{op: e.op})
			}
			out[i].count++
			out[i].took += e.took
			total += e.took
		}
	}
	slices.SortFunc(out, func(a, b cost) int { return cmp.Or(cmp.Compare(b.took, a.took), strings.Compare(a.op, b.op)) })
	return out, total
}

// seconds returns how long the traced updates took, from the first to the last.
func (t *timeline) seconds() float64 {
	own := t.rows[0].events
	return float64(own[len(own)-1].end()-own[0].start) / 1e9
}

// costliest is how many types of operations the table has.
const costliest = 15

// table writes a title and the costliest operations. It calls Write once per line.
func (t *timeline) table(out io.Writer, title string) error {
	var text bytes.Buffer
	fmt.Fprintln(&text, title)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "operation\tcount\ttotal ms\tshare\t\n")
	costs, total := t.costs()
	if len(costs) > costliest {
		rest := cost{op: fmt.Sprintf("%d others", len(costs)-costliest)}
		for _, c := range costs[costliest:] {
			rest.count, rest.took = rest.count+c.count, rest.took+c.took
		}
		costs = append(costs[:costliest:costliest], rest)
	}
	for _, c := range costs {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.1f%%\t\n", c.op, c.count, float64(c.took)/1e6, 100*float64(c.took)/float64(max(1, total)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
	}
	return nil
}
