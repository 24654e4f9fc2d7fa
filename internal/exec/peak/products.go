package peak

import (
	"context"
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Products is how fast a CPU multiplies matrices in float32 and in bf16, in floating point operations
// per second.
type Products struct {
	Float32 float64 `json:"float32_flops,omitempty"`
	BF16    float64 `json:"bf16_flops,omitempty"`
	// Emulated says why the CPU emulates products in bf16, which are not measured then; "" if it does
	// not.
	Emulated string `json:"bf16_emulated,omitempty"`
}

// CompareProducts measures the products of this machine's CPU in both precisions with the given
// function. emulated is what devices.SlowBF16 says.
func CompareProducts(ctx context.Context, emulated string, measure func(context.Context, Key) (Peak, error)) (Products, error) {
	p := Products{Emulated: emulated}
	if emulated != "" {
		return p, nil
	}
	wide, err := measure(ctx, CPU("float32"))
	if err != nil {
		return p, err
	}
	narrow, err := measure(ctx, CPU("bf16"))
	p.Float32, p.BF16 = wide.FLOPS, narrow.FLOPS
	return p, err
}

// String says in a sentence whether bf16 is slower than float32. Rates that differ by less than a
// twentieth count as equal: measurements do not tell them apart.
func (p Products) String() string {
	const equal = 0.05
	if p.Emulated != "" {
		return "products in bf16 are slower than in float32 on this machine, which emulates them: " + p.Emulated
	}
	how := "as fast as"
	switch ratio := p.BF16 / p.Float32; {
	case ratio <= 1-equal:
		how = "slower than"
	case ratio >= 1+equal:
		how = fmt.Sprintf("%.1f times as fast as", ratio)
	}
	rate := func(flops float64) string { return words.Scaled(flops, "", "k", "M", "G", "T", "P") + "FLOP/s" }
	return fmt.Sprintf("products in bf16 are %s in float32 on this machine: %s against %s", how, rate(p.BF16), rate(p.Float32))
}
