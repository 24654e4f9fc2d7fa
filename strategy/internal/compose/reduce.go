package compose

import (
	"fmt"
	"math"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// groupKey identifies the group of all replicas in TensorFlow's collectives.
const groupKey = 1

// bucket is a set of gradients that are reduced as one vector.
type bucket struct {
	variables []graphs.Variable
	// sums is set if the vector also holds the weight and loss sums.
	sums bool
}

// buckets divides the variables, in order, into buckets of at most the given bytes. A variable of
// that size or more has a bucket of its own, so that it need not be copied into a vector. So does a
// variable of which only some rows are reduced.
func buckets(order []graphs.Variable, bytes int64, sums bool) []bucket {
	var out []bucket
	var open bucket
	size := int64(0)
	shut := func() {
		if len(open.variables) > 0 {
			out = append(out, open)
		}
		open, size = bucket{}, 0
	}
	for _, v := range order {
		n := 4 * elements(v.Shape)
		if n >= bytes || v.Rows != "" {
			out = append(out, bucket{variables: []graphs.Variable{v}})
			continue
		}
		if size+n > bytes {
			shut()
		}
		open.variables = append(open.variables, v)
		size += n
	}
	open.sums = sums
	if len(open.variables) > 0 || sums {
		out = append(out, open)
	}
	return out
}

// reduce sums what the replicas made and returns the result on every replica. Weights and losses are
// summed unless total says that these are totals already.
//
// The buckets are reduced in the order in which the gradients are computed, while the rest of the
// backward pass runs.
func (c *composer) reduce(prefix string, order []graphs.Variable, m []made, total bool) []made {
	typeT := build.Type("T", float32Type)
	reduced := slices.Clone(m)
	for i := range reduced {
		reduced[i].grads = make(map[string]build.Ref)
	}
	add := c.collective(prefix)
	if len(c.replicas) <= mostExchanging && c.Hint != "nccl" {
		add = c.exchange
	}
	for k, b := range buckets(order, c.Bucket, !total) {
		at := func(i int) string { return fmt.Sprintf("%s%sreduce/%d", c.replicas[i].prefix, prefix, k) }
		vectors := make([]build.Ref, len(c.replicas))
		if len(b.variables) == 1 && !b.sums {
			v := b.variables[0]
			for i, r := range c.replicas {
				c.OnDevice(r.device)
				vectors[i] = c.rowsOf(at(i)+"/rows", v, m[i].grads[v.Name])
			}
			for i, sum := range add(at, vectors, v.Rows) {
				c.OnDevice(c.replicas[i].device)
				reduced[i].grads[v.Name] = c.withRows(at(i), v, m[i].grads[v.Name], sum)
			}
			continue
		}
		var shapes [][]int64
		for _, v := range b.variables {
			shapes = append(shapes, v.Shape)
		}
		if b.sums {
			shapes = append(shapes, []int64{2})
		}
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			var parts []build.Ref
			for _, v := range b.variables {
				parts = append(parts, m[i].grads[v.Name])
			}
			if b.sums {
				parts = append(parts, c.Node("Pack", at(i)+"/sums", []build.Ref{m[i].weight, m[i].loss}, typeT, build.Int("N", 2), build.Int("axis", 0)))
			}
			vectors[i] = c.join(at(i)+"/joined", parts)
		}
		for i, sum := range add(at, vectors, "") {
			c.OnDevice(c.replicas[i].device)
			at := at(i)
			parts := c.divide(at+"/divided", sum, shapes)
			for j, v := range b.variables {
				reduced[i].grads[v.Name] = parts[j]
			}
			if b.sums {
				sums := c.Node("Unpack", at+"/sums/unpack", parts[len(b.variables):], typeT, build.Int("num", 2), build.Int("axis", 0))
				reduced[i].weight, reduced[i].loss = sums.Output(0), sums.Output(1)
			}
		}
	}
	return reduced
}

// adder sums one tensor of each replica and returns the sum on each replica. At returns the name of
// a replica's node. Rows is the feature that lists the rows of the tensors, or "".
type adder func(at func(int) string, tensors []build.Ref, rows string) []build.Ref

// mostExchanging is the largest number of replicas that use exchange.
const mostExchanging = 2

// exchange sums tensors with ordinary edges: every replica receives all of them and adds them in
// the same order. With two replicas, this sends as many bytes as a ring, in a single round.
func (c *composer) exchange(at func(int) string, tensors []build.Ref, _ string) []build.Ref {
	sums := make([]build.Ref, len(tensors))
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		sums[i] = c.Node("AddN", at(i)+"/sum", tensors, build.Type("T", float32Type), build.Int("N", int64(len(tensors))))
	}
	return sums
}

// collective sums tensors with TensorFlow's collectives. Those of a replica run one after the
// other, so that two replicas cannot wait for each other in different collectives.
func (c *composer) collective(prefix string) adder {
	before := make([]build.Ref, len(c.replicas))
	sizes, groups := make([]build.Ref, len(c.replicas)), make([]build.Ref, len(c.replicas))
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		name := r.prefix + prefix + "reduce"
		sizes[i] = c.Int32(name+"/group_size", int32(len(c.replicas)))
		groups[i] = c.Int32(name+"/group_key", groupKey)
	}
	return func(at func(int) string, tensors []build.Ref, rows string) []build.Ref {
		c.instance++
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			key := c.Int32(at(i)+"/instance_key", c.instance*rowClasses)
			if rows != "" {
				// TensorFlow requires that the shape for a key never changes.
				key = c.Node("AddV2", at(i)+"/instance_key/class", []build.Ref{key, c.rows[rows].Class}, build.Type("T", dtpb.DataType_DT_INT32))
			}
			inputs := []build.Ref{tensors[i], sizes[i], groups[i], key}
			if !before[i].IsZero() {
				inputs = append(inputs, before[i].After())
			}
			before[i] = c.Node("CollectiveReduceV2", at(i), inputs, build.Type("T", float32Type), build.String("merge_op", "Add"), build.String("final_op", "Id"),
				build.String("communication_hint", c.Hint), build.Int("Nordering_token", 0))
		}
		return slices.Clone(before)
	}
}

// rowsOf returns the rows of a variable's gradient that are not 0 on some replica, or the whole
// gradient if they are unknown.
func (c *composer) rowsOf(name string, v graphs.Variable, gradient build.Ref) build.Ref {
	if v.Rows == "" {
		return gradient
	}
	return c.Node("GatherV2", name, []build.Ref{gradient, c.rows[v.Rows].Rows, c.Int32(name+"/axis", 0)},
		build.Type("Tparams", float32Type), build.Type("Tindices", dtpb.DataType_DT_INT32), build.Type("Taxis", dtpb.DataType_DT_INT32))
}

// withRows writes the sums of rows that rowsOf returned into a replica's own gradient. The other
// rows are 0 on every replica.
func (c *composer) withRows(name string, v graphs.Variable, gradient, rows build.Ref) build.Ref {
	if v.Rows == "" {
		return rows
	}
	indices := c.Node("ExpandDims", name+"/indices", []build.Ref{c.rows[v.Rows].Rows, c.Int32(name+"/indices/axis", 1)},
		build.Type("T", dtpb.DataType_DT_INT32), build.Type("Tdim", dtpb.DataType_DT_INT32))
	return c.Node("TensorScatterUpdate", name+"/whole", []build.Ref{gradient, indices, rows},
		build.Type("T", float32Type), build.Type("Tindices", dtpb.DataType_DT_INT32))
}

// rowClasses is the number of classes of RowClass.
const rowClasses = 256

// RowClass rounds a number of rows up to one of a few sizes, by at most a tenth for more than 16
// rows, so that the shape of reduced tensors seldom changes from step to step. It returns the class
// of the size and the size.
func RowClass(n int) (class, size int) {
	for class := range rowClasses {
		if size := int(math.Ceil(16 * math.Pow(2, float64(class)/8))); size >= n {
			return class, size
		}
	}
	return rowClasses - 1, n
}
