package gguf

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// Type is the type of a tensor's numbers, as ggml numbers them.
type Type uint32

// layout says how numbers of a type lie: in blocks of elements that take bytes. decode is nil for types that
// are not read.
type layout struct {
	name            string
	elements, bytes int64
	decode          func(block []byte, out []float32)
}

var layouts = map[Type]layout{
	0:  {"F32", 1, 4, func(b []byte, out []float32) { out[0] = math.Float32frombits(binary.LittleEndian.Uint32(b)) }},
	1:  {"F16", 1, 2, func(b []byte, out []float32) { out[0] = half(b) }},
	2:  {"Q4_0", 32, 18, fromQ4s},
	3:  {"Q4_1", 32, 20, fromQ4},
	6:  {"Q5_0", 32, 22, fromQ5s},
	7:  {"Q5_1", 32, 24, fromQ5},
	8:  {"Q8_0", 32, 34, fromQ8},
	9:  {"Q8_1", 32, 36, nil},
	10: {"Q2_K", 256, 84, nil},
	11: {"Q3_K", 256, 110, nil},
	12: {"Q4_K", 256, 144, fromQ4K},
	13: {"Q5_K", 256, 176, fromQ5K},
	14: {"Q6_K", 256, 210, fromQ6K},
	15: {"Q8_K", 256, 292, nil},
	16: {"IQ2_XXS", 256, 66, nil},
	17: {"IQ2_XS", 256, 74, nil},
	18: {"IQ3_XXS", 256, 98, nil},
	19: {"IQ1_S", 256, 50, nil},
	20: {"IQ4_NL", 32, 18, nil},
	21: {"IQ3_S", 256, 110, nil},
	22: {"IQ2_S", 256, 82, nil},
	23: {"IQ4_XS", 256, 136, nil},
	24: {"I8", 1, 1, nil},
	25: {"I16", 1, 2, nil},
	26: {"I32", 1, 4, nil},
	27: {"I64", 1, 8, nil},
	28: {"F64", 1, 8, nil},
	29: {"IQ1_M", 256, 56, nil},
	30: {"BF16", 1, 2, func(b []byte, out []float32) {
		out[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}},
	34: {"TQ1_0", 256, 54, nil},
	35: {"TQ2_0", 256, 66, nil},
	39: {"MXFP4", 32, 17, nil},
}

// readable lists the types that can be read.
func readable() (names []string) {
	for _, l := range layouts {
		if l.decode != nil {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return names
}

func half(b []byte) float32 { return dtype.FromHalf(binary.LittleEndian.Uint16(b)) }

// In what follows, products are rounded before they are added to: float32(a*b) + c is the same on all
// machines, a*b + c is not.

// fromQ4s reads 4 bits around 8, by one scale.
func fromQ4s(b []byte, out []float32) {
	d := half(b)
	for i, q := range b[2:18] {
		out[i], out[i+16] = d*float32(int(q&15)-8), d*float32(int(q>>4)-8)
	}
}

// fromQ4 reads 4 bits, by a scale and a minimum.
func fromQ4(b []byte, out []float32) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		out[i], out[i+16] = float32(d*float32(q&15))+m, float32(d*float32(q>>4))+m
	}
}

// fifth is the fifth bit of number i, in place.
func fifth(high uint32, i int) byte { return byte(high>>i&1) << 4 }

// fromQ5s reads 5 bits around 16, by one scale.
func fromQ5s(b []byte, out []float32) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:22] {
		out[i] = d * float32(int(q&15|fifth(high, i))-16)
		out[i+16] = d * float32(int(q>>4|fifth(high, i+16))-16)
	}
}

// fromQ5 reads 5 bits, by a scale and a minimum.
func fromQ5(b []byte, out []float32) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:24] {
		out[i] = float32(d*float32(q&15|fifth(high, i))) + m
		out[i+16] = float32(d*float32(q>>4|fifth(high, i+16))) + m
	}
}

// fromQ8 reads bytes, by one scale.
func fromQ8(b []byte, out []float32) {
	d := half(b)
	for i, q := range b[2:34] {
		out[i] = d * float32(int8(q))
	}
}

// scaleMin returns the scale and the minimum of 32 numbers, of 6 bits each, from the 12 bytes of a block.
func scaleMin(b []byte, i int) (scale, least float32) {
	if i < 4 {
		return float32(b[i] & 63), float32(b[i+4] & 63)
	}
	return float32(b[i+4]&15 | b[i-4]>>6<<4), float32(b[i+4]>>4 | b[i]>>6<<4)
}

// fromQ4K reads 4 bits, by scales and minimums of 32 numbers each.
func fromQ4K(b []byte, out []float32) {
	fromK(b, out, b[16:144], nil)
}

// fromQ5K is fromQ4K with a fifth bit.
func fromQ5K(b []byte, out []float32) {
	fromK(b, out, b[48:176], b[16:48])
}

// fromK reads 4 low bits from low and, unless high is nil, a fifth bit from there.
func fromK(b []byte, out []float32, low, high []byte) {
	d, m := half(b), half(b[2:])
	for group := range 8 {
		scale, least := scaleMin(b[4:16], group)
		scale, least = d*scale, m*least
		for i := range 32 {
			q := low[group/2*32+i] >> (group % 2 * 4) & 15
			if high != nil {
				q |= high[i] >> group & 1 << 4
			}
			out[group*32+i] = float32(scale*float32(q)) - least
		}
	}
}

// fromQ6K reads 6 bits around 32, by scales of 16 numbers each.
func fromQ6K(b []byte, out []float32) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range out {
		part, at := i/128, i%128
		q := low[part*64+at%64] >> (at / 64 * 4) & 15
		q |= high[part*32+at%32] >> (at / 32 * 2) & 3 << 4
		out[i] = d * float32(int8(scales[i/16])) * float32(int(q)-32)
	}
}
