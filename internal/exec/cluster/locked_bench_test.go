package cluster

import (
	"slices"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

// reducer returns a function that sums so many numbers over the devices of a cluster.
func reducer(b *testing.B, f *Cluster, numbers int32) func() {
	b.Helper()
	graph := tf.NewGraph()
	add := func(spec tf.OpSpec) *tf.Operation {
		op, err := graph.AddOperation(spec)
		if err != nil {
			b.Fatal(err)
		}
		return op
	}
	var targets []*tf.Operation
	all := f.Devices()
	for i, device := range all {
		name := string(rune('a' + i))
		constant := func(what string, value any) tf.Output {
			tensor, err := tf.NewTensor(value)
			if err != nil {
				b.Fatal(err)
			}
			return add(tf.OpSpec{Type: "Const", Name: name + what, Device: device, Attrs: map[string]any{"dtype": tensor.DataType(), "value": tensor}}).Output(0)
		}
		// Random, so that it is made for each step.
		values := add(tf.OpSpec{Type: "RandomUniform", Name: name + "values", Device: device, Input: []tf.Input{constant("shape", []int32{numbers})},
			Attrs: map[string]any{"dtype": tf.Float}}).Output(0)
		targets = append(targets, add(tf.OpSpec{Type: "CollectiveReduceV2", Name: name + "reduce", Device: device,
			Input: []tf.Input{values, constant("size", int32(len(all))), constant("group", int32(1)), constant("instance", int32(1)), tf.OutputList{}},
			Attrs: map[string]any{"merge_op": "Add", "final_op": "Id"}}))
	}
	config, err := proto.Marshal(&cpb.ConfigProto{Experimental: &cpb.ConfigProto_Experimental{CollectiveGroupLeader: GroupLeader}})
	if err != nil {
		b.Fatal(err)
	}
	session, err := tf.NewSession(graph, &tf.SessionOptions{Target: f.Target(), Config: config})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { session.Close() })
	return func() {
		if _, err := session.Run(nil, nil, targets); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReduce sums 4 MiB, and 64 MiB, over two workers without keys, with keys and by sockets, in
// turns, and reports the medians.
func BenchmarkReduce(b *testing.B) {
	for _, size := range []struct {
		name    string
		numbers int32
	}{{"4MiB", 1 << 20}, {"64MiB", 1 << 24}} {
		b.Run(size.name, func(b *testing.B) {
			var sums [3]func()
			for i, args := range [][]string{nil, {peertls.NewToken()}, {socketFolder(b)}} {
				workers := pair(b, args...)
				f, err := Connect(b.Context(), Config{Addresses: addresses(workers), Version: "test", IntraOpThreads: 1, Keys: workers[0].keys(b), Sockets: workers[0].sockets()})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = f.Close() })
				sums[i] = reducer(b, f, size.numbers)
				sums[i]() // connects
			}
			var took [3][]time.Duration
			for b.Loop() {
				for i, sum := range sums {
					begin := time.Now()
					sum()
					took[i] = append(took[i], time.Since(begin))
				}
			}
			median := func(d []time.Duration) float64 {
				slices.Sort(d)
				return d[len(d)/2].Seconds() * 1000
			}
			open, locked, sockets := median(took[0]), median(took[1]), median(took[2])
			b.ReportMetric(open, "open-ms")
			b.ReportMetric(locked, "locked-ms")
			b.ReportMetric(sockets, "sockets-ms")
			b.ReportMetric(locked/open, "locked/open")
			b.ReportMetric(sockets/open, "sockets/open")
			b.ReportMetric(0, "ns/op")
		})
	}
}
