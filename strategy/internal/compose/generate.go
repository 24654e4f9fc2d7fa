package compose

import (
	"maps"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// Generate is the call that computes the logits of next tokens, on the first replica.
type Generate struct {
	// InputIDs, PositionIDs, Slots, Context, Last and, of a model with sources, Source are what it is fed;
	// Logits is what it gives.
	InputIDs, PositionIDs, Slots, Context, Last, Source, Logits build.Ref
	Caches                                                      Caches
	// Narrowed makes the copies of variables that the function reads in a dtype of fewer bits. They have to
	// be made again when the variables have changed. It is zero if there are none.
	Narrowed build.Ref
	// Encode is the call that reads sources; nil of a model without.
	Encode *Encode
}

// Encode is the call that writes to the caches of sources, on the first replica.
type Encode struct {
	// InputIDs, PositionIDs and Slots are what it is fed; Encoded is what it gives.
	InputIDs, PositionIDs, Slots, Encoded build.Ref
	Caches                                Caches
}

// Caches are variables whose number of slots is known only when they are made: Made makes them, of as many
// slots as Count is fed.
type Caches struct{ Count, Made build.Ref }

// generate adds the calls of the functions generate and encode, if there are any, with their caches.
func (c *composer) generate() {
	f := c.export.Functions["generate"]
	if f == nil {
		return
	}
	r := c.replicas[0]
	g := c.export.Contract.Generation
	p := new(Generate)
	var inputs map[string]build.Ref
	p.Caches, inputs = c.caches(r, "generate", g.Caches)
	fed := func(function, name string, axes int) build.Ref {
		c.OnDevice(r.host)
		return c.Placeholder(function+"/"+name, int32Type, []int64{-1, -1}[:axes])
	}
	p.InputIDs, p.PositionIDs, p.Slots = fed("generate", graphs.GenerateInputIDs, 2), fed("generate", graphs.GeneratePositionIDs, 2), fed("generate", graphs.GenerateSlots, 2)
	p.Context, p.Last = fed("generate", graphs.GenerateContext, 2), fed("generate", graphs.GenerateLast, 1)
	maps.Copy(inputs, map[string]build.Ref{
		graphs.GenerateInputIDs: p.InputIDs, graphs.GeneratePositionIDs: p.PositionIDs, graphs.GenerateSlots: p.Slots,
		graphs.GenerateContext: p.Context, graphs.GenerateLast: p.Last,
	})
	if encode := c.export.Functions["encode"]; encode != nil {
		e := new(Encode)
		var own map[string]build.Ref
		e.Caches, own = c.caches(r, "encode", g.Source.Caches)
		maps.Copy(inputs, own)
		p.Source = fed("generate", graphs.GenerateSource, 2)
		inputs[graphs.GenerateSource] = p.Source
		e.InputIDs, e.PositionIDs, e.Slots = fed("encode", graphs.GenerateInputIDs, 2), fed("encode", graphs.GeneratePositionIDs, 2), fed("encode", graphs.GenerateSlots, 2)
		maps.Copy(own, map[string]build.Ref{graphs.GenerateInputIDs: e.InputIDs, graphs.GeneratePositionIDs: e.PositionIDs, graphs.GenerateSlots: e.Slots})
		c.OnDevice(r.device)
		e.Encoded = c.Call("encode", encode, own, c.passHandles(r)).Output(encode.Output(graphs.EncodeEncoded))
		p.Encode = e
	}
	f, handles := c.narrowed(r, f, p)
	c.OnDevice(r.device)
	p.Logits = c.Call("generate", f, inputs, handles).Output(f.Output(graphs.GenerateLogits))
	c.plan.Generate = p
}

// narrowed makes the function read copies in bfloat16 of the variables that it casts to that: the time of
// a next token is that of reading them. It returns the function, and the handles of all that it captures.
func (c *composer) narrowed(r *replica, f *graphs.Function, p *Generate) (*graphs.Function, map[string]build.Ref) {
	const to = dtpb.DataType_DT_BFLOAT16
	f, names := c.Narrow(f, to)
	if len(names) == 0 {
		return f, c.passHandles(r)
	}
	handles := maps.Clone(c.passHandles(r))
	var made []build.Ref
	c.OnDevice(r.device)
	for _, v := range c.export.Contract.Variables {
		if !slices.Contains(names, v.Name) {
			continue
		}
		name := "generate/narrow/" + v.Name
		value := c.Node("Cast", name+"/value", []build.Ref{c.Read(name+"/read", handles[v.Name], float32Type)}, build.Type("SrcT", float32Type), build.Type("DstT", to), build.Bool("Truncate", false))
		copied := c.Variable(name, to, v.Shape)
		handles[v.Name+build.NarrowSuffix] = copied
		made = append(made, c.Assign(name+"/make", copied, value, to))
	}
	c.OnDevice(r.host)
	p.Narrowed = c.Group("generate/narrow/make", made...)
	return f, handles
}

// caches adds the caches of a function, and returns their handles by argument.
func (c *composer) caches(r *replica, function string, all []graphs.Cache) (Caches, map[string]build.Ref) {
	c.OnDevice(r.host)
	count := c.Placeholder(function+"/slots/count", int64Type, []int64{1})
	axis := c.Int32(function+"/slots/axis", 0)
	handles := make(map[string]build.Ref)
	var made []build.Ref
	for _, cache := range all {
		name, t := function+"/"+cache.Argument(), typeOf(cache.DType)
		c.OnDevice(r.host)
		shape := c.Node("ConcatV2", name+"/shape", []build.Ref{count, c.Int64s(name+"/entry", cache.Shape), axis},
			build.Int("N", 2), build.Type("T", int64Type), build.Type("Tidx", int32Type))
		zero := c.Node("Cast", name+"/zero", []build.Ref{c.Float(name+"/zero/float", 0)}, build.Type("SrcT", float32Type), build.Type("DstT", t), build.Bool("Truncate", false))
		c.OnDevice(r.device)
		handle := c.Variable(name, t, append([]int64{-1}, cache.Shape...))
		zeros := c.Node("Fill", name+"/zeros", []build.Ref{shape, zero}, build.Type("T", t), build.Type("index_type", int64Type))
		made = append(made, c.Assign(name+"/make", handle, zeros, t))
		handles[cache.Argument()] = handle
	}
	c.OnDevice(r.host)
	return Caches{count, c.Group(function+"/make", made...)}, handles
}
