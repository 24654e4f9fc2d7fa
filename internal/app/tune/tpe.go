package tune

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// split divides the trials into the best, at most a tenth of them and 25, and the others, each in
// the order of their numbers; _split_trials and default_gamma in optuna/samplers/_tpe/sampler.py.
// Complete trials come before pruned ones, and pruned ones with more evaluations before those with
// fewer. Trials that run now are among the others, so that trials side by side do not try the same.
// enough says whether there are as many as the sampler wants before it looks at them.
func (s *Study) split() (below, above []*Trial, enough bool) {
	var complete, pruned, running []*Trial
	for _, t := range s.trials {
		switch {
		case t.State == Complete && t.HasValue && !math.IsNaN(t.Value):
			complete = append(complete, t)
		case t.State == Pruned:
			pruned = append(pruned, t)
		case t.State == Running:
			running = append(running, t)
		}
	}
	slices.SortStableFunc(complete, func(a, b *Trial) int { return s.config.compare(a.Value, b.Value) })
	last := func(t *Trial) float64 {
		if len(t.Reports) == 0 {
			return math.NaN()
		}
		return t.Reports[len(t.Reports)-1].Value
	}
	slices.SortStableFunc(pruned, func(a, b *Trial) int {
		return cmp.Or(cmp.Compare(len(b.Reports), len(a.Reports)), s.config.compare(last(a), last(b)))
	})
	ranked := slices.Concat(complete, pruned)
	n := min((len(ranked)+9)/10, 25)
	below, above = slices.Clone(ranked[:n]), slices.Concat(ranked[n:], running)
	for _, half := range [][]*Trial{below, above} {
		slices.SortFunc(half, func(a, b *Trial) int { return a.Number - b.Number })
	}
	return below, above, len(ranked) >= s.config.Sampler.Startup
}

// tpe draws a value of a param: of the candidates drawn from the density of the best trials' values,
// the one at which this density is largest next to that of the others.
func (c Config) tpe(r *rand.Rand, p Param, below, above []*Trial) float64 {
	d := p.Distribution
	if d.count() == 1 {
		return d.at(0)
	}
	good, bad := newDensity(d, values(p, below)), newDensity(d, values(p, above))
	best, at := math.Inf(-1), 0.0
	for i := range c.Sampler.Candidates {
		v := good.draw(r)
		if score := good.log(v) - bad.log(v); i == 0 || score > best {
			best, at = score, v
		}
	}
	return at
}

// values returns those of a param that trials had.
func values(p Param, trials []*Trial) []float64 {
	var out []float64
	for _, t := range trials {
		v, ok := t.Params[p.Name]
		if ok && t.Distributions[p.Name].same(p.Distribution) && p.Distribution.has(v) {
			out = append(out, v)
		}
	}
	return out
}

// density is a Parzen estimator: the density of values like those given, and of any value.
type density struct {
	of      Distribution
	weights []float64 // of the components; their sum is 1
	// Of numbers, each component is a normal distribution on the scale, cut at the bounds.
	mu, sigma []float64
	low, high float64
	// Of choices, each component has the probability of each choice.
	shares [][]float64
}

// newDensity returns the density for values; _ParzenEstimator in
// optuna/samplers/_tpe/parzen_estimator.py with its defaults: a prior of weight 1, magic clip, no
// end points.
func newDensity(d Distribution, values []float64) *density {
	e := &density{of: d, weights: weights(len(values))}
	if d.Kind == Categorical {
		e.categorical(values)
	} else {
		e.numerical(values)
	}
	return e
}

// weights returns those of n values and of the prior; default_weights in
// optuna/samplers/_tpe/sampler.py: the last 25 and the prior have the same, older ones less.
func weights(n int) []float64 {
	out := make([]float64, n+1)
	sum := 0.0
	for i := range out {
		out[i] = 1
		if ramp := n - 25; i < ramp {
			out[i] = 1 / float64(n)
			if ramp > 1 {
				out[i] += (1 - 1/float64(n)) * float64(i) / float64(ramp-1)
			}
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// categorical gives each value a component: its choice with weight 1, and all choices with a weight
// of the prior. The last component is the prior.
func (e *density) categorical(values []float64) {
	kernels, choices := len(values)+1, len(e.of.Choices)
	for i := range kernels {
		row := slices.Repeat([]float64{1 / float64(kernels)}, choices)
		if i < len(values) {
			row[int(values[i])]++
		}
		sum := 0.0
		for _, v := range row {
			sum += v
		}
		for j := range row {
			row[j] /= sum
		}
		e.shares = append(e.shares, row)
	}
}

// numerical gives each value a component that is as wide as the larger distance to its neighbours,
// within limits. The last component is the prior: the middle, as wide as the range.
func (e *density) numerical(values []float64) {
	e.low, e.high = e.of.bounds()
	n, width := len(values), e.high-e.low
	order := make([]int, n)
	for i, v := range values {
		e.mu = append(e.mu, e.of.toScale(v))
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(e.mu[a], e.mu[b]) })
	e.sigma = make([]float64, n, n+1)
	narrowest := width / min(100, 2+float64(n))
	for at, i := range order {
		left, right := e.low, e.high
		if at > 0 {
			left = e.mu[order[at-1]]
		}
		if at < n-1 {
			right = e.mu[order[at+1]]
		}
		sigma := max(e.mu[i]-left, right-e.mu[i])
		switch { // the ends of the range are no neighbours
		case n < 2:
		case at == 0:
			sigma = right - e.mu[i]
		case at == n-1:
			sigma = e.mu[i] - left
		}
		e.sigma[i] = min(max(sigma, narrowest), width)
	}
	e.mu, e.sigma = append(e.mu, (e.low+e.high)/2), append(e.sigma, width)
}

// draw draws a value.
func (e *density) draw(r *rand.Rand) float64 {
	i := pick(r, e.weights)
	if e.shares != nil {
		return float64(pick(r, e.shares[i]))
	}
	mu, sigma := e.mu[i], e.sigma[i]
	// A component's middle is within the range, so that neither end is far out in a tail.
	from, to := normal((e.low-mu)/sigma), normal((e.high-mu)/sigma)
	z := math.Sqrt2 * math.Erfinv(2*(from+(to-from)*r.Float64())-1)
	return e.of.fromScale(min(max(mu+sigma*z, e.low), e.high))
}

// pick returns a position, as likely as its weight. The sum of the weights is 1.
func pick(r *rand.Rand, weights []float64) int {
	v := r.Float64()
	for i, w := range weights {
		if v -= w; v < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// log returns the logarithm of the density at a value, or of its probability if it is one of
// several.
func (e *density) log(v float64) float64 {
	terms := make([]float64, len(e.weights))
	for i, w := range e.weights {
		terms[i] = math.Log(w) + e.component(i, v)
	}
	most := slices.Max(terms)
	if math.IsInf(most, -1) {
		return most
	}
	sum := 0.0
	for _, t := range terms {
		sum += math.Exp(t - most)
	}
	return most + math.Log(sum)
}

// component returns the logarithm of one component's density at a value.
func (e *density) component(i int, v float64) float64 {
	if e.shares != nil {
		return math.Log(e.shares[i][int(v)])
	}
	mu, sigma := e.mu[i], e.sigma[i]
	whole := mass((e.low-mu)/sigma, (e.high-mu)/sigma)
	if e.of.Step > 0 {
		half := e.of.Step / 2
		return math.Log(mass((e.of.toScale(v-half)-mu)/sigma, (e.of.toScale(v+half)-mu)/sigma)) - math.Log(whole)
	}
	z := (e.of.toScale(v) - mu) / sigma
	return -z*z/2 - math.Log(2*math.Pi)/2 - math.Log(sigma) - math.Log(whole)
}

// normal returns the normal distribution's probability below z.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// mass returns the normal distribution's probability from a to b.
func mass(a, b float64) float64 {
	if a > 0 { // where normal is near 1 and its differences are not exact
		a, b = -b, -a
	}
	return normal(b) - normal(a)
}
