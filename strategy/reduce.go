package strategy

import (
	"fmt"
	"math"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// groupKey names the group of all replicas to TensorFlow's collectives.
const groupKey = 1

// bucket is some gradients that are reduced as one vector.
type bucket struct {
	variables []graphs.Variable
	// sums is set where the weight and loss sums go along.
	sums bool
}

// buckets cuts the variables, in order, into pieces of about so many bytes. A
// variable as large as that goes alone: it need not be copied into a vector. So does
// one of which only some rows are reduced.
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

// reduce adds up the replicas' gradients, and their weight and loss sums unless
// these are totals already, and gives every replica the result.
//
// Collectives of a replica run one after the other, in the order in which the
// gradients are made: reducing overlaps with what is left of the backward pass, and
// no two replicas wait for each other in different places.
func (c *composer) reduce(prefix string, order []graphs.Variable, grads []map[string]string, weights, losses []string, total bool) ([]map[string]string, []string, []string) {
	typeT := graphs.Type("T", float32Type)
	all := buckets(order, c.bucket, !total)
	reduced := make([]map[string]string, len(c.replicas))
	weights, losses = append([]string(nil), weights...), append([]string(nil), losses...)
	for i, r := range c.replicas {
		reduced[i] = make(map[string]string)
		c.OnDevice(r.device)
		name := r.prefix + prefix + "reduce"
		size := c.Int32(name+"/group_size", int32(len(c.replicas)))
		group := c.Int32(name+"/group_key", groupKey)
		before := ""
		for k, b := range all {
			at := fmt.Sprintf("%s/%d", name, k)
			key := c.Int32(at+"/instance_key", (c.instance+int32(k)+1)*rowClasses)
			collective := func(tensor string) string {
				inputs := []string{tensor, size, group, key}
				if before != "" {
					inputs = append(inputs, "^"+before)
				}
				before = c.Node("CollectiveReduceV2", at, inputs, typeT, graphs.String("merge_op", "Add"), graphs.String("final_op", "Id"),
					graphs.String("communication_hint", c.hint), graphs.Int("Nordering_token", 0))
				return before
			}
			if len(b.variables) == 1 && !b.sums {
				v := b.variables[0]
				own := grads[i][v.Name]
				if v.Rows != "" {
					// TensorFlow wants one shape for ever of what has one key.
					key = c.Node("AddV2", at+"/instance_key/class", []string{key, c.plan.train.rows[v.Rows].class}, graphs.Type("T", dtpb.DataType_DT_INT32))
				}
				sum := collective(c.rowsOf(at+"/rows", v, own))
				reduced[i][v.Name] = c.withRows(at, v, own, sum)
				continue
			}
			flat := c.Int32s(at+"/flat", []int32{-1})
			var parts []string
			var sizes []int64
			for _, v := range b.variables {
				parts = append(parts, c.Node("Reshape", at+"/flat/"+v.Name, []string{grads[i][v.Name], flat}, typeT,
					graphs.Type("Tshape", dtpb.DataType_DT_INT32)))
				sizes = append(sizes, elements(v.Shape))
			}
			if b.sums {
				parts = append(parts, c.Node("Pack", at+"/sums", []string{weights[i], losses[i]}, typeT, graphs.Int("N", 2), graphs.Int("axis", 0)))
				sizes = append(sizes, 2)
			}
			axis := c.Int32(at+"/axis", 0)
			vector := parts[0]
			if len(parts) > 1 {
				vector = c.Node("ConcatV2", at+"/concat", append(parts, axis), typeT,
					graphs.Int("N", int64(len(parts))), graphs.Type("Tidx", dtpb.DataType_DT_INT32))
			}
			split := c.Node("SplitV", at+"/split", []string{collective(vector), c.Int64s(at+"/sizes", sizes), axis}, typeT,
				graphs.Int("num_split", int64(len(sizes))), graphs.Type("Tlen", int64Type))
			for j, v := range b.variables {
				shape := c.Int64s(at+"/shape/"+v.Name, v.Shape)
				reduced[i][v.Name] = c.Node("Reshape", at+"/shaped/"+v.Name, []string{fmt.Sprintf("%s:%d", split, j), shape}, typeT,
					graphs.Type("Tshape", int64Type))
			}
			if b.sums {
				sums := c.Node("Unpack", at+"/sums/unpack", []string{fmt.Sprintf("%s:%d", split, len(sizes)-1)}, typeT,
					graphs.Int("num", 2), graphs.Int("axis", 0))
				weights[i], losses[i] = sums+":0", sums+":1"
			}
		}
	}
	c.instance += int32(len(all))
	return reduced, weights, losses
}

// rowsOf returns the rows of a variable's gradient that some replica has numbers in,
// or all of it where that is not known.
func (c *composer) rowsOf(name string, v graphs.Variable, gradient string) string {
	if v.Rows == "" {
		return gradient
	}
	return c.Node("GatherV2", name, []string{gradient, c.plan.train.rows[v.Rows].rows, c.Int32(name+"/axis", 0)},
		graphs.Type("Tparams", float32Type), graphs.Type("Tindices", dtpb.DataType_DT_INT32), graphs.Type("Taxis", dtpb.DataType_DT_INT32))
}

// withRows puts rows that rowsOf took, all replicas' added up, into a replica's own
// gradient, whose other rows are 0 on every replica.
func (c *composer) withRows(name string, v graphs.Variable, gradient, rows string) string {
	if v.Rows == "" {
		return rows
	}
	indices := c.Node("ExpandDims", name+"/indices", []string{c.plan.train.rows[v.Rows].rows, c.Int32(name+"/indices/axis", 1)},
		graphs.Type("T", dtpb.DataType_DT_INT32), graphs.Type("Tdim", dtpb.DataType_DT_INT32))
	return c.Node("TensorScatterUpdate", name+"/whole", []string{gradient, indices, rows},
		graphs.Type("T", float32Type), graphs.Type("Tindices", dtpb.DataType_DT_INT32))
}

// rowFeed are the placeholders of the rows that gradients have.
type rowFeed struct {
	rows  string // int32, their numbers
	class string // int32 [], the class of their number
}

// rowClasses bounds the classes of rowClass.
const rowClasses = 256

// rowClass rounds a number of rows up to one of few, at most a tenth more: the shape
// of what is reduced does not change from step to step without need. It returns the
// number's class as well.
func rowClass(n int) (class, size int) {
	for class := range rowClasses {
		if size := int(math.Ceil(16 * math.Pow(2, float64(class)/8))); size >= n {
			return class, size
		}
	}
	return rowClasses - 1, n
}
