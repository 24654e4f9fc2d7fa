package peak

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// CPU returns the key of this machine's processor.
func CPU(precision string) Key {
	return Key{Kind: "CPU", Model: devices.Processor(), Cores: runtime.NumCPU(), Precision: precision, OneDNN: devices.OneDNN(), TensorFlow: tf.Version()}
}

// GPU returns the key of this machine's first GPU; ok is false if it has none.
func GPU(precision string) (k Key, ok bool) {
	found := cuda.Query().GPUs
	if len(found) == 0 {
		return Key{}, false
	}
	return Key{Kind: "GPU", Model: found[0].Name, Precision: precision, TensorFlow: tf.Version()}, true
}

// Of returns the key of the devices of this machine that a model is on, by TensorFlow's names, and how
// many of the peak's device they are: virtual CPUs are the same cores. ok is false for GPUs that are
// not found.
func Of(names []string, precision string) (k Key, n int, ok bool) {
	gpus := 0
	for _, name := range names {
		if strings.Contains(strings.ToUpper(name), "GPU:") {
			gpus++
		}
	}
	if gpus == 0 {
		return CPU(precision), 1, true
	}
	k, ok = GPU(precision)
	return k, gpus, ok
}

// dtypes are TensorFlow's types of the precisions.
var dtypes = map[string]tf.DataType{"float32": tf.Float, "bf16": tf.Bfloat16, "fp16": tf.Half}

// sizes are the shapes of the products of a kind of device, rows and width, and how many a call makes
// one after the other, so that the call itself does not count.
var sizes = map[string]struct {
	shapes [][2]int
	chain  int
}{
	"CPU": {[][2]int{{1024, 1024}, {2048, 768}, {512, 1536}}, 8},
	"GPU": {[][2]int{{4096, 4096}, {8192, 8192}}, 32},
}

// Measure measures the peak of a device of this machine: the fastest of many calls that multiply
// matrices of each shape, for long or, on a busy machine, a few times as long. It returns a BusyError if
// other processes had the cores of a CPU all the time.
func Measure(ctx context.Context, k Key, long time.Duration) (Peak, error) {
	dtype, ok := dtypes[k.Precision]
	if !ok {
		return Peak{}, fmt.Errorf("precision is %q; expected float32, bf16 or fp16", k.Precision)
	}
	no := map[string]string{"bf16": devices.NoBF16(), "fp16": devices.NoFP16()}
	if reason := no[k.Precision]; reason != "" && k.Kind == "CPU" {
		return Peak{}, fmt.Errorf("matrix products in %s would end the process: %s", k.Precision, reason)
	}
	best := 0.0
	for _, shape := range sizes[k.Kind].shapes {
		rate, err := products(ctx, k.Kind, dtype, shape[0], shape[1], sizes[k.Kind].chain, long)
		if err != nil {
			return Peak{}, fmt.Errorf("measure matrix products of %s in %s: %w", k.Kind, k.Precision, err)
		}
		best = max(best, rate)
	}
	return Peak{Key: k, FLOPS: best, Measured: time.Now().UTC().Truncate(time.Second)}, nil
}

// chained is a graph of products: x w w w ...
type chained struct {
	graph  *tf.Graph
	device string
	init   []*tf.Operation
	err    error
}

func (c *chained) op(kind, name string, attrs map[string]any, inputs ...tf.Input) *tf.Operation {
	if c.err != nil {
		return nil
	}
	var op *tf.Operation
	op, c.err = c.graph.AddOperation(tf.OpSpec{Type: kind, Name: name, Input: inputs, Attrs: attrs, Device: c.device})
	return op
}

func (c *chained) out(op *tf.Operation) tf.Output {
	if c.err != nil {
		return tf.Output{}
	}
	return op.Output(0)
}

func (c *chained) constant(name string, value any) tf.Output {
	t, err := tf.NewTensor(value)
	if err != nil {
		c.err = err
		return tf.Output{}
	}
	return c.out(c.op("Const", name, map[string]any{"dtype": t.DataType(), "value": t}))
}

// matrix adds a variable of random numbers of which products keep the scale.
func (c *chained) matrix(name string, rows, columns int, dtype tf.DataType) tf.Output {
	shape := c.constant(name+"_shape", []int32{int32(rows), int32(columns)})
	random := c.out(c.op("RandomStandardNormal", name+"_random", map[string]any{"dtype": tf.Float}, shape))
	scaled := c.out(c.op("Mul", name+"_scaled", nil, random, c.constant(name+"_scale", float32(1/math.Sqrt(float64(columns))))))
	cast := c.out(c.op("Cast", name+"_cast", map[string]any{"DstT": dtype}, scaled))
	variable := c.out(c.op("VarHandleOp", name, map[string]any{"dtype": dtype, "shape": tf.MakeShape(int64(rows), int64(columns)), "shared_name": "gorbit_peak_" + name}))
	c.init = append(c.init, c.op("AssignVariableOp", name+"_assign", map[string]any{"dtype": dtype}, variable, cast))
	return c.out(c.op("ReadVariableOp", name+"_read", map[string]any{"dtype": dtype}, variable))
}

// products returns the rate of products of [rows, width] and [width, width], in FLOPs per second.
func products(ctx context.Context, kind string, dtype tf.DataType, rows, width, chain int, long time.Duration) (float64, error) {
	c := &chained{graph: tf.NewGraph(), device: "/device:" + kind + ":0"}
	y, w := c.matrix("x", rows, width, dtype), c.matrix("w", width, width, dtype)
	for i := range chain {
		y = c.out(c.op("MatMul", fmt.Sprintf("product_%d", i), nil, y, w))
	}
	// A GPU is waited for by taking a number.
	number := c.out(c.op("Cast", "number", map[string]any{"DstT": tf.Float}, y))
	sum := c.out(c.op("Max", "max", nil, number, c.constant("axes", []int32{0, 1})))
	if c.err != nil {
		return 0, c.err
	}
	config := &cpb.ConfigProto{GpuOptions: &cpb.GPUOptions{AllowGrowth: true}, AllowSoftPlacement: true,
		GraphOptions: &cpb.GraphOptions{RewriteOptions: &cpb.RewriterConfig{DisableMetaOptimizer: true}}}
	if kind == "CPU" {
		config.DeviceCount = map[string]int32{"GPU": 0}
	}
	raw, err := proto.Marshal(config)
	if err != nil {
		return 0, err
	}
	session, err := tf.NewSession(c.graph, &tf.SessionOptions{Config: raw})
	if err != nil {
		return 0, err
	}
	defer runtime.KeepAlive(c.graph)
	defer session.Close()
	if _, err := session.Run(nil, nil, c.init); err != nil {
		return 0, err
	}
	call := func() error {
		_, err := session.Run(nil, []tf.Output{sum}, nil)
		return err
	}
	if err := call(); err != nil { // the first call prepares
		return 0, err
	}
	m := meter{now: time.Now, threads: threads}
	if kind != "CPU" {
		m.threads = func() usage { return usage{} }
	}
	fastest, err := m.fastest(ctx, call, long)
	if err != nil {
		return 0, err
	}
	return 2 * float64(rows) * float64(width) * float64(width) * float64(chain) / fastest.Seconds(), nil
}
