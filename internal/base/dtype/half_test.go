package dtype

import (
	"math"
	"testing"
)

// Every half-precision number, by the definition of the format.
func TestFromHalf(t *testing.T) {
	for h := range 1 << 16 {
		sign, exponent, fraction := float64(1-2*(h>>15)), h>>10&31, float64(h&1023)
		want := sign * math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = sign * math.Ldexp(fraction, -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(int(sign))
		case exponent == 31:
			want = math.NaN()
		}
		got := float64(FromHalf(uint16(h)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%04x is %v, want %v", h, got, want)
		}
	}
}
