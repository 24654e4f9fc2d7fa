package dataset

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

func TestPermutationIsABijection(t *testing.T) {
	sizes := []int64{1000, 4096, 10007, 65536}
	for n := int64(1); n <= 130; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for seed := range uint64(3) {
			p := newPermutation(n, key(seed, useRecords, 0))
			seen := make([]bool, n)
			for i := range n {
				j := p.at(i)
				if j < 0 || j >= n || seen[j] {
					t.Fatalf("n %d, seed %d: %d is taken to %d, which is out of range or taken", n, seed, i, j)
				}
				seen[j] = true
				if back := p.inverse(j); back != i {
					t.Fatalf("n %d, seed %d: inverse of %d is %d, expected %d", n, seed, j, back, i)
				}
			}
		}
	}
}

func TestPermutationOfLargeSets(t *testing.T) {
	for _, n := range []int64{1<<31 + 11, 1_000_000_000_039, 1<<52 + 1} {
		p := newPermutation(n, 1)
		for _, i := range []int64{0, 1, 2, n / 3, n - 2, n - 1} {
			j := p.at(i)
			if j < 0 || j >= n || p.inverse(j) != i {
				t.Errorf("n %d: %d is taken to %d and back to %d", n, i, j, p.inverse(j))
			}
		}
	}
}

// TestPermutationIsFair counts where elements end up over many keys. The bounds
// of chi-square are far outside of chance; the keys are fixed, so a result does
// not change from run to run.
func TestPermutationIsFair(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	const keys = 200000
	t.Run("all orders of 4", func(t *testing.T) {
		counts := map[[4]int64]int{}
		for k := range uint64(keys) {
			p := newPermutation(4, key(k/100, useRecords, k%100))
			counts[[4]int64{p.at(0), p.at(1), p.at(2), p.at(3)}]++
		}
		expect := float64(keys) / 24
		chi := float64(24-len(counts)) * expect
		for _, c := range counts {
			chi += (float64(c) - expect) * (float64(c) - expect) / expect
		}
		if chi > 72 { // 23 degrees of freedom
			t.Errorf("chi-square is %.1f, expected less than 72; %d of 24 orders occur", chi, len(counts))
		}
	})
	chi := func(counts []float64) (x float64) {
		expect := keys / float64(len(counts))
		for _, c := range counts {
			x += (c - expect) * (c - expect) / expect
		}
		return x
	}
	for _, n := range []int64{3, 5, 6, 7, 12, 20, 100} {
		// Two neighbours of the drawing order: where the first lands, and how
		// far from it the second.
		first, gap := make([]float64, n), make([]float64, n)
		for k := range uint64(keys) {
			p := newPermutation(n, key(k%2, useRecords, k/2))
			i := int64(k) % (n - 1)
			a, b := p.at(i), p.at(i+1)
			first[a]++
			gap[(b-a+n)%n]++
		}
		limit := float64(n) + 7*math.Sqrt(float64(2*n)) + 10
		if x := chi(first); x > limit {
			t.Errorf("n %d: chi-square of places is %.1f, expected less than %.0f", n, x, limit)
		}
		if x := chi(gap[1:]); x > limit {
			t.Errorf("n %d: chi-square of distances is %.1f, expected less than %.0f", n, x, limit)
		}
	}
}

// TestPermutationStays holds the permutation to a second implementation, in
// testdata/generate.py: saved positions stand for other records if it changes.
func TestPermutationStays(t *testing.T) {
	data, err := os.ReadFile("testdata/permutations.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		N     int64
		Seed  uint64
		Uses  []uint64
		First []int64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		p := newPermutation(c.N, key(c.Seed, c.Uses...))
		for i, want := range c.First {
			if got := p.at(int64(i)); got != want {
				t.Errorf("permutation of %d, seed %d, uses %v: %d is taken to %d, expected %d", c.N, c.Seed, c.Uses, i, got, want)
			}
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	p := newPermutation(1_000_003, 7)
	for i := range b.N {
		p.at(int64(i % 1_000_003))
	}
}

func TestPermutationOfEach(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 10, 1000, 1_000_003} {
		p := newPermutation(n, key(3, uint64(n)))
		for count := range 12 {
			var numbers, want []int64
			for i := range count {
				numbers = append(numbers, int64(i)*7919%n)
				want = append(want, p.at(numbers[i]))
			}
			if p.atEach(numbers); !slices.Equal(numbers, want) {
				t.Errorf("%d numbers below %d are taken to %v, expected %v", count, n, numbers, want)
			}
		}
	}
}
