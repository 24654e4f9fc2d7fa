package loop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Draw replaces the values of variables whose initializer a contract tells, but for those that were
// loaded. The values of a variable depend on the seed and its name alone.
func Draw(c *graphs.Contract, seed int64, values, loaded map[string]*tf.Tensor) error {
	if err := checkDrawn(c, func(name string) bool { return loaded[name] != nil }); err != nil {
		return err
	}
	names := make([]string, len(c.Variables))
	for i, v := range c.Variables {
		names[i] = v.Name
	}
	return draw(c, seed, names, values, loaded)
}

// draw is Draw for the variables of some names, which are checked.
func draw(c *graphs.Contract, seed int64, names []string, values, loaded map[string]*tf.Tensor) error {
	for _, v := range c.Variables {
		if v.Initializer == nil || loaded[v.Name] != nil || !slices.Contains(names, v.Name) {
			continue
		}
		if v.DType != "float32" {
			return fmt.Errorf("variable %s is %s; expected float32, because its initial values are drawn", v.Name, v.DType)
		}
		content := make([]byte, 0, 4*v.Elements())
		next := Generator(*v.Initializer, seed, v.Name)
		for range v.Elements() {
			content = binary.NativeEndian.AppendUint32(content, math.Float32bits(next()))
		}
		t, err := tf.ReadTensor(tf.Float, v.Shape, bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
		values[v.Name] = t
	}
	return nil
}

// checkDrawn returns a *params.Error if the contract does not say how to draw the values of a variable
// that is not loaded.
func checkDrawn(c *graphs.Contract, loaded func(name string) bool) error {
	told, unknown := false, []string(nil)
	for _, v := range c.Variables {
		told = told || v.Initializer != nil
		if v.Initializer != nil && v.Initializer.Kind == graphs.Unknown && !loaded(v.Name) {
			unknown = append(unknown, v.Name)
		}
	}
	const kept = "leave it out to keep the values of the export"
	if !told {
		return params.Errorf("init_values", "is seed, and the export does not say how the values of its variables are drawn; expected an export of gorbit_export's own layers, or of a model of Keras 3 whose values no file gave; "+kept)
	}
	if len(unknown) > 0 {
		return params.Errorf("init_values", "is seed, and the initializers of these variables are not among those that gorbit can draw from: %s; expected Keras' own but for Orthogonal; %s", strings.Join(unknown, ", "), kept)
	}
	return nil
}

// Generator returns what draws the values of a variable, one after the other. The generator is PCG-DXSM
// (O'Neill), seeded with the run's seed and the FNV-1a hash of the name; numbers are normal by the
// method of Box and Muller (1958); where the distribution is cut off, those beyond two deviations are
// drawn again.
func Generator(i graphs.Initializer, seed int64, name string) func() float32 {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	pcg := rand.NewPCG(uint64(seed), hash.Sum64())
	unit := func() float64 { return (float64(pcg.Uint64()>>11) + 0.5) / (1 << 53) } // above 0, below 1
	if i.Kind == graphs.Uniform {
		return func() float32 { return float32(i.Mean + float64(i.Scale*(2*unit()-1))) }
	}
	return func() float32 {
		for {
			z := math.Sqrt(-2*math.Log(unit())) * math.Cos(2*math.Pi*unit())
			if math.Abs(z) <= 2 || i.Kind == graphs.Normal {
				return float32(i.Mean + float64(i.Scale*z))
			}
		}
	}
}
