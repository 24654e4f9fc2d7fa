package compose

import (
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// Generate is the call that computes the logits of next tokens, on the first replica.
type Generate struct {
	// InputIDs, PositionIDs, Slots, Context and Last are what it is fed; Logits is what it gives.
	InputIDs, PositionIDs, Slots, Context, Last, Logits build.Ref
	// Made makes the caches, of as many slots as Count is fed.
	Count, Made build.Ref
}

// generate adds the call of the function generate, if there is one, with its caches. These are variables
// whose number of slots is known only when they are made.
func (c *composer) generate() {
	f := c.export.Functions["generate"]
	if f == nil {
		return
	}
	r := c.replicas[0]
	c.OnDevice(r.host)
	matrix := []int64{-1, -1}
	p := &Generate{
		InputIDs:    c.Placeholder("generate/"+graphs.GenerateInputIDs, int32Type, matrix),
		PositionIDs: c.Placeholder("generate/"+graphs.GeneratePositionIDs, int32Type, matrix),
		Slots:       c.Placeholder("generate/"+graphs.GenerateSlots, int32Type, matrix),
		Context:     c.Placeholder("generate/"+graphs.GenerateContext, int32Type, matrix),
		Last:        c.Placeholder("generate/"+graphs.GenerateLast, int32Type, []int64{-1}),
		Count:       c.Placeholder("generate/slots/count", int64Type, []int64{1}),
	}
	inputs := map[string]build.Ref{
		graphs.GenerateInputIDs: p.InputIDs, graphs.GeneratePositionIDs: p.PositionIDs, graphs.GenerateSlots: p.Slots,
		graphs.GenerateContext: p.Context, graphs.GenerateLast: p.Last,
	}
	axis := c.Int32("generate/slots/axis", 0)
	var made []build.Ref
	for _, cache := range c.export.Contract.Generation.Caches {
		name, t := "generate/"+cache.Argument(), typeOf(cache.DType)
		c.OnDevice(r.host)
		shape := c.Node("ConcatV2", name+"/shape", []build.Ref{p.Count, c.Int64s(name+"/entry", cache.Shape), axis},
			build.Int("N", 2), build.Type("T", int64Type), build.Type("Tidx", int32Type))
		zero := c.Node("Cast", name+"/zero", []build.Ref{c.Float(name+"/zero/float", 0)}, build.Type("SrcT", float32Type), build.Type("DstT", t), build.Bool("Truncate", false))
		c.OnDevice(r.device)
		handle := c.Variable(name, t, append([]int64{-1}, cache.Shape...))
		zeros := c.Node("Fill", name+"/zeros", []build.Ref{shape, zero}, build.Type("T", t), build.Type("index_type", int64Type))
		made = append(made, c.Assign(name+"/make", handle, zeros, t))
		inputs[cache.Argument()] = handle
	}
	c.OnDevice(r.host)
	p.Made = c.Group("generate/make", made...)
	c.OnDevice(r.device)
	node := c.Call("generate", f, inputs, c.passHandles(r))
	p.Logits = node.Output(f.Output(graphs.GenerateLogits))
	c.plan.Generate = p
}
