package tune

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// source returns the random numbers of a param of a trial. They depend on nothing else, so that a
// param that is added to a study does not change those of the others.
func (c Config) source(number int, param string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(param)) // never fails
	return rand.New(rand.NewPCG(c.Sampler.Seed, h.Sum64()+uint64(number)*0x9e3779b97f4a7c15))
}

// sample returns the params of the trial with a number.
func (s *Study) sample(number int) map[string]float64 {
	if s.config.Sampler.Name == Grid {
		return s.config.gridAt(s.begun())
	}
	out := make(map[string]float64, len(s.config.Space))
	below, above, enough := s.split()
	for _, p := range s.config.Space {
		random := s.config.source(number, p.Name)
		if s.config.Sampler.Name == TPE && enough {
			out[p.Name] = s.config.tpe(random, p, below, above)
		} else {
			out[p.Name] = p.Distribution.random(random)
		}
	}
	return out
}

// gridAt returns the combination at a position of the grid; the last param changes first.
func (c Config) gridAt(i int) map[string]float64 {
	out := make(map[string]float64, len(c.Space))
	for at := len(c.Space) - 1; at >= 0; at-- {
		values := c.Space[at].grid()
		out[c.Space[at].Name] = values[i%len(values)]
		i /= len(values)
	}
	return out
}

// random draws a value, each as likely as another.
func (d Distribution) random(r *rand.Rand) float64 {
	if n := d.count(); n > 0 && !d.Log {
		return d.at(r.IntN(n))
	}
	low, high := d.bounds()
	return d.fromScale(low + (high-low)*r.Float64())
}

// bounds returns the ends of the values on their scale. Values with steps have half a step beyond
// them, so that rounding makes each as likely as another.
func (d Distribution) bounds() (low, high float64) {
	low, high = d.Low-d.Step/2, d.High+d.Step/2
	if d.Log {
		return math.Log(low), math.Log(high)
	}
	return low, high
}

// toScale returns a value on its scale.
func (d Distribution) toScale(v float64) float64 {
	if d.Log {
		return math.Log(v)
	}
	return v
}

// fromScale returns the value at a place on the scale.
func (d Distribution) fromScale(v float64) float64 {
	if d.Log {
		v = math.Exp(v)
	}
	return d.onStep(v)
}
