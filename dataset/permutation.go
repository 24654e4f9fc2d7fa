package dataset

import (
	"math"
	"math/bits"
)

// rounds is the number of half rounds of the permutation's network. Sets of
// fewer than 20 records need about 16 to look random in a chi-square test; 8 are
// enough for large ones.
const rounds = 20

// permutation is a bijection of the numbers 0 to n-1, computed one number at a
// time and never held in memory.
//
// It is an unbalanced Feistel network on the pairs (l, r) with l < a, r < b
// and a*b just above n (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", 2002). A half round adds a keyed hash of one half to the other half,
// modulo its range. A result of n or more goes through the network again until
// it is below n, which keeps the map a bijection.
type permutation struct {
	n, a, b uint64
	keys    [rounds]uint64
}

// newPermutation returns the permutation of n numbers for a key.
func newPermutation(n int64, key uint64) permutation {
	p := permutation{n: uint64(n)}
	p.a = uint64(math.Ceil(math.Sqrt(float64(n))))
	p.b = (p.n + p.a - 1) / p.a
	for i := range p.keys {
		key += golden
		p.keys[i] = mix(key)
	}
	return p
}

// at returns the image of i.
func (p *permutation) at(i int64) int64 {
	x := uint64(i)
	for {
		l, r := x%p.a, x/p.a
		for k := 0; k < rounds; k += 2 {
			l = add(l, scale(mix(r+p.keys[k]), p.a), p.a)
			r = add(r, scale(mix(l+p.keys[k+1]), p.b), p.b)
		}
		if x = r*p.a + l; x < p.n {
			return int64(x)
		}
	}
}

// lanes is how many numbers atEach processes at a time. The rounds of one number
// depend on each other, and those of the other numbers fill the gaps.
const lanes = 4

// atEach replaces each number by its image.
func (p *permutation) atEach(numbers []int64) {
	for ; len(numbers) >= lanes; numbers = numbers[lanes:] {
		var l, r [lanes]uint64
		for i := range lanes {
			x := uint64(numbers[i])
			l[i], r[i] = x%p.a, x/p.a
		}
		for k := 0; k < rounds; k += 2 {
			for i := range lanes {
				l[i] = add(l[i], scale(mix(r[i]+p.keys[k]), p.a), p.a)
			}
			for i := range lanes {
				r[i] = add(r[i], scale(mix(l[i]+p.keys[k+1]), p.b), p.b)
			}
		}
		for i := range lanes {
			x := int64(r[i]*p.a + l[i])
			if x >= int64(p.n) {
				x = p.at(x)
			}
			numbers[i] = x
		}
	}
	for i, x := range numbers {
		numbers[i] = p.at(x)
	}
}

// inverse returns the number whose image is i.
func (p *permutation) inverse(i int64) int64 {
	x := uint64(i)
	for {
		l, r := x%p.a, x/p.a
		for k := rounds - 2; k >= 0; k -= 2 {
			r = add(r, p.b-scale(mix(l+p.keys[k+1]), p.b), p.b)
			l = add(l, p.a-scale(mix(r+p.keys[k]), p.a), p.a)
		}
		if x = r*p.a + l; x < p.n {
			return int64(x)
		}
	}
}

// add returns x+y modulo m, for x < m and y <= m.
func add(x, y, m uint64) uint64 {
	if x += y; x >= m {
		x -= m
	}
	return x
}

// scale maps a hash evenly to the numbers below m.
func scale(hash, m uint64) uint64 {
	hi, _ := bits.Mul64(hash, m)
	return hi
}

// golden is 2^64 divided by the golden ratio, the step of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// key hashes a seed with the numbers that say what the key is used for.
func key(seed uint64, uses ...uint64) uint64 {
	k := mix(seed + golden)
	for _, u := range uses {
		k = mix((k ^ mix(u+golden)) + golden)
	}
	return k
}
