package train

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
)

// draw replaces the values of variables whose initializer a contract tells. Those of a variable depend
// on the seed and its name alone.
func draw(c *graphs.Contract, seed int64, values map[string]*tf.Tensor) error {
	drawn := 0
	for _, v := range c.Variables {
		if v.Initializer == nil {
			continue
		}
		if v.DType != "float32" {
			return fmt.Errorf("variable %s is %s; expected float32, because its initial values are drawn", v.Name, v.DType)
		}
		content := make([]byte, 0, 4*v.Elements())
		next := generator(*v.Initializer, seed, v.Name)
		for range v.Elements() {
			content = binary.NativeEndian.AppendUint32(content, math.Float32bits(next()))
		}
		t, err := tf.ReadTensor(tf.Float, v.Shape, bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
		values[v.Name] = t
		drawn++
	}
	if drawn == 0 {
		return &ParamsError{errors.New("init_values is seed, and the export does not say how the values of its variables are drawn; expected an export of gorbit_export's own layers; leave it out to keep the values of the export")}
	}
	return nil
}

// generator returns what draws the values of a variable, one after the other. The generator is PCG-DXSM
// (O'Neill), seeded with the run's seed and the FNV-1a hash of the name; numbers are normal by the
// method of Box and Muller (1958), of which those beyond two deviations are drawn again.
func generator(i graphs.Initializer, seed int64, name string) func() float32 {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	pcg := rand.NewPCG(uint64(seed), hash.Sum64())
	unit := func() float64 { return (float64(pcg.Uint64()>>11) + 0.5) / (1 << 53) } // above 0, below 1
	if i.Kind == graphs.Uniform {
		return func() float32 { return float32(i.Scale * (2*unit() - 1)) }
	}
	return func() float32 {
		for {
			z := math.Sqrt(-2*math.Log(unit())) * math.Cos(2*math.Pi*unit())
			if math.Abs(z) <= 2 {
				return float32(i.Scale * z)
			}
		}
	}
}
