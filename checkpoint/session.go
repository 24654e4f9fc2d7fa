package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"
	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// NamedTensor is a tensor to be saved.
type NamedTensor struct {
	Name  string
	Value *tf.Tensor
}

// readBatch is the maximum number of bytes that one RestoreV2 call reads, so that a
// cancelled context is noticed and no single call reads everything.
const readBatch = 256 << 20

// session is a small private TensorFlow session on the CPU. Operations can be added to
// its graph.
type session struct {
	graph *tf.Graph
	sess  *tf.Session
	next  int
}

func newSession(o options) (*session, error) {
	config := &tfproto.ConfigProto{
		// The accelerators belong to the training session.
		DeviceCount:               map[string]int32{"GPU": 0},
		IntraOpParallelismThreads: int32(o.intraOp),
		// A pool of its own: a save that waits for the disk must not occupy a
		// thread on which the training step runs.
		SessionInterOpThreadPool: []*tfproto.ThreadPoolOptionProto{{NumThreads: 2, GlobalName: "gorbit_checkpoint"}},
		GraphOptions: &tfproto.GraphOptions{
			OptimizerOptions: &tfproto.OptimizerOptions{OptLevel: tfproto.OptimizerOptions_L0},
			RewriteOptions:   &tfproto.RewriterConfig{DisableMetaOptimizer: true},
		},
	}
	raw, err := proto.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("checkpoint session: %w", err)
	}
	g := tf.NewGraph()
	s, err := tf.NewSession(g, &tf.SessionOptions{Config: raw})
	if err != nil {
		return nil, fmt.Errorf("checkpoint session: %w", err)
	}
	return &session{graph: g, sess: s}, nil
}

func (s *session) close() { s.sess.Close() }

// add adds an operation under a fresh name.
func (s *session) add(op string, attrs map[string]any, inputs ...tf.Input) (*tf.Operation, error) {
	s.next++
	return s.graph.AddOperation(tf.OpSpec{
		Type: op, Name: fmt.Sprintf("%s_%d", op, s.next), Input: inputs, Attrs: attrs,
	})
}

// constant adds a Go value to the graph.
func (s *session) constant(v any) (tf.Output, error) {
	t, err := tf.NewTensor(v)
	if err != nil {
		return tf.Output{}, err
	}
	op, err := s.add("Const", map[string]any{"dtype": t.DataType(), "value": t})
	if err != nil {
		return tf.Output{}, err
	}
	return op.Output(0), nil
}

// bundleInputs adds the inputs that SaveV2 and RestoreV2 share: the prefix, the
// names, and an empty slice specification for each.
func (s *session) bundleInputs(prefix string, names []string) (in [3]tf.Output, err error) {
	for i, v := range []any{prefix, names, make([]string, len(names))} {
		if in[i], err = s.constant(v); err != nil {
			return in, err
		}
	}
	return in, nil
}

// WriteBundle writes a checkpoint of the tensors, under exactly their names, with
// TensorFlow's SaveV2, and flushes it to disk. The folder of prefix must exist. The
// tensors are not copied, so nobody may write to them before WriteBundle returns. The
// context is checked before writing begins.
//
// Existing files are replaced, but not atomically: use a [Manager] for checkpoints that
// are either complete or invisible.
func WriteBundle(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error {
	if err := writeBundle(ctx, prefix, tensors, opts...); err != nil {
		return fmt.Errorf("write checkpoint %s: %w", prefix, err)
	}
	return nil
}

func writeBundle(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if len(tensors) == 0 {
		return fmt.Errorf("no tensors")
	}
	if info, err := vfs.Stat(filepath.Dir(prefix)); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", filepath.Dir(prefix))
	}
	// Sort names like the index, so that the bytes of a checkpoint do not depend on the
	// order in which the caller lists its variables.
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b NamedTensor) int { return strings.Compare(a.Name, b.Name) })
	names := make([]string, len(tensors))
	for i, t := range tensors {
		switch {
		case t.Name == "" || t.Name[0] == 0:
			return fmt.Errorf("bad tensor name %q", t.Name)
		case t.Value == nil:
			return fmt.Errorf("tensor %q has no value", t.Name)
		case i > 0 && t.Name == names[i-1]:
			return fmt.Errorf("two tensors are named %q", t.Name)
		}
		if d := dtype.DType(t.Value.DataType()); !d.Known() || d == dtype.Variant || d == dtype.Resource {
			return fmt.Errorf("tensor %q has type %s, which cannot be saved", t.Name, d)
		}
		names[i] = t.Name
	}
	s, err := newSession(o)
	if err != nil {
		return err
	}
	defer s.close()
	in, err := s.bundleInputs(prefix, names)
	if err != nil {
		return err
	}
	feeds := make(map[tf.Output]*tf.Tensor, len(tensors))
	values := make(tf.OutputList, len(tensors))
	for i, t := range tensors {
		op, err := s.add("Placeholder", map[string]any{"dtype": t.Value.DataType()})
		if err != nil {
			return err
		}
		values[i] = op.Output(0)
		feeds[values[i]] = t.Value
	}
	save, err := s.add("SaveV2", nil, in[0], in[1], in[2], values)
	if err != nil {
		return err
	}
	if _, err := s.sess.Run(feeds, nil, []*tf.Operation{save}); err != nil {
		removeTempStates(prefix)
		return fromTensorFlow(err)
	}
	// TensorFlow wrote the files but did not sync them.
	dir := filepath.Dir(prefix)
	for _, path := range []string{DataPath(prefix, 0, 1), IndexPath(prefix)} {
		if err := vfs.SyncFile(path); err != nil {
			return fmt.Errorf("flush %s: %w", path, err)
		}
	}
	return vfs.SyncDir(dir)
}

// removeTempStates deletes the leftovers of a failed SaveV2 next to prefix. It ignores
// errors, because the caller already has one.
func removeTempStates(prefix string) {
	dir, base := filepath.Split(prefix)
	dir = cmp.Or(dir, ".")
	list, _ := vfs.ReadDir(dir)
	for _, f := range list {
		rest, ok := strings.CutPrefix(f.Name(), base+".")
		if ok && strings.Contains(rest, ".tempstate") {
			_ = vfs.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// Read reads tensors with TensorFlow's RestoreV2. Names are keys or paths of the object
// graph; without names, Read reads all entries. The result has the names as given. The
// checksum of each tensor is verified. If names are missing, the error is a
// [MismatchError] that lists them.
func (b *Bundle) Read(ctx context.Context, names ...string) (map[string]*tf.Tensor, error) {
	if len(names) == 0 {
		for _, e := range b.entries {
			names = append(names, e.Name)
		}
	}
	list, err := b.lookup(names)
	if err != nil {
		return nil, err
	}
	if err := b.readable(ctx, list); err != nil {
		return nil, err
	}
	prefix, done, err := b.plainPrefix()
	if err != nil {
		return nil, err
	}
	defer done()
	s, err := newSession(b.opts)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out := make(map[string]*tf.Tensor, len(names))
	for start := 0; start < len(list); {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read checkpoint %s: %w", b.prefix, err)
		}
		end, bytes := start, int64(0)
		for end < len(list) && (end == start || bytes+list[end].Size <= readBatch) {
			bytes += list[end].Size
			end++
		}
		tensors, err := vfs.Again(func() ([]*tf.Tensor, error) {
			tensors, err := s.restore(prefix, list[start:end])
			return tensors, fromTensorFlow(err)
		})
		if err != nil {
			return nil, b.explain(ctx, list[start:end], err)
		}
		for i, t := range tensors {
			out[names[start+i]] = t
		}
		start = end
	}
	return out, nil
}

func (s *session) restore(prefix string, list []Entry) ([]*tf.Tensor, error) {
	keys := make([]string, len(list))
	types := make([]tf.DataType, len(list))
	fetches := make([]tf.Output, len(list))
	for i, e := range list {
		keys[i], types[i] = e.Name, e.DType
	}
	in, err := s.bundleInputs(prefix, keys)
	if err != nil {
		return nil, err
	}
	op, err := s.add("RestoreV2", map[string]any{"dtypes": types}, in[0], in[1], in[2])
	if err != nil {
		return nil, err
	}
	for i := range fetches {
		fetches[i] = op.Output(i)
	}
	return s.sess.Run(nil, fetches, nil)
}

// readable checks what TensorFlow does not: it allocates memory by the string lengths in
// a data file.
func (b *Bundle) readable(ctx context.Context, list []Entry) error {
	var texts []Entry
	for _, e := range list {
		switch {
		case dtype.DType(e.DType) == dtype.Variant:
			return fmt.Errorf("%s: tensor %s cannot be read", b.prefix, e)
		case e.DType == tf.String && e.Slices == 0:
			texts = append(texts, e)
		}
	}
	return b.verify(ctx, inFileOrder(texts))
}

// explain replaces TensorFlow's error by the damage that caused it, if it finds any. The
// new error names the file, the tensor and the offset.
func (b *Bundle) explain(ctx context.Context, list []Entry, err error) error {
	wanted := make(map[string]bool, len(list))
	for _, e := range list {
		wanted[e.Name] = true
	}
	var parts []Entry
	for _, e := range b.stored() {
		if wanted[e.Name] {
			parts = append(parts, e)
		}
	}
	if cause := b.verify(ctx, parts); cause != nil {
		return cause
	}
	return fmt.Errorf("read checkpoint %s: %w", b.prefix, err)
}

// plainPrefix returns a prefix that RestoreV2 takes literally. RestoreV2 matches the name
// of the index as a glob pattern before it opens it, so a folder such as "lr[1e-5]" is
// reached through a link with a plain name.
func (b *Bundle) plainPrefix() (prefix string, done func(), err error) {
	if !strings.ContainsAny(b.prefix, `*?[\`) {
		return b.prefix, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "gorbit-checkpoint-")
	if err != nil {
		return "", nil, fmt.Errorf("read checkpoint %s: %w", b.prefix, err)
	}
	done = func() { os.RemoveAll(dir) }
	prefix = filepath.Join(dir, "bundle")
	link := func(from, to string) error {
		from, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		return os.Symlink(from, to)
	}
	err = link(b.index, IndexPath(prefix))
	for i := range b.shards {
		if err == nil {
			err = link(b.dataPath(i), DataPath(prefix, i, b.shards))
		}
	}
	if err != nil {
		done()
		return "", nil, fmt.Errorf("read checkpoint %s: %w", b.prefix, err)
	}
	return prefix, done, nil
}

// reshaper casts and transposes tensors, with one graph for a whole load.
type reshaper struct {
	opts options
	s    *session
	ops  map[reshape][2]tf.Output // the outputs to feed and to fetch
}

type reshape struct {
	from, to  tf.DataType
	transpose bool
}

func (r *reshaper) close() {
	if r.s != nil {
		r.s.close()
	}
}

// apply returns t with type to, and with the axes of a matrix swapped if transpose is set.
func (r *reshaper) apply(t *tf.Tensor, to tf.DataType, transpose bool) (*tf.Tensor, error) {
	want := reshape{t.DataType(), to, transpose}
	if want.from == to && !transpose {
		return t, nil
	}
	io, ok := r.ops[want]
	if !ok {
		var err error
		if io, err = r.build(want); err != nil {
			return nil, err
		}
		r.ops[want] = io
	}
	out, err := r.s.sess.Run(map[tf.Output]*tf.Tensor{io[0]: t}, []tf.Output{io[1]}, nil)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func (r *reshaper) build(want reshape) (io [2]tf.Output, err error) {
	if r.s == nil {
		if r.s, err = newSession(r.opts); err != nil {
			return io, err
		}
		r.ops = map[reshape][2]tf.Output{}
	}
	op, err := r.s.add("Placeholder", map[string]any{"dtype": want.from})
	if err != nil {
		return io, err
	}
	io[0], io[1] = op.Output(0), op.Output(0)
	if want.from != want.to {
		if op, err = r.s.add("Cast", map[string]any{"DstT": want.to}, io[1]); err != nil {
			return io, err
		}
		io[1] = op.Output(0)
	}
	if want.transpose {
		perm, err := r.s.constant([]int32{1, 0})
		if err != nil {
			return io, err
		}
		if op, err = r.s.add("Transpose", nil, io[1], perm); err != nil {
			return io, err
		}
		io[1] = op.Output(0)
	}
	return io, nil
}
