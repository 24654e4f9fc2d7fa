package packed

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
)

// checkPlaces fails the test unless the places are rows without overlap, whose
// examples are numbered from 1 from left to right and stand side by side.
func checkPlaces(t *testing.T, p *packer, how Packing, lengths []int32, limit int, fixed bool) (rows, rowLength int) {
	t.Helper()
	rows, rowLength = p.pack(how, lengths, limit, fixed)
	if rows < 1 || rows > len(lengths) || rowLength > limit || fixed && rowLength != limit {
		t.Fatalf("%s: %d rows of %d for %d examples of at most %d", how, rows, rowLength, len(lengths), limit)
	}
	at := make([][]int, rows)
	for i, pl := range p.places {
		at[pl.row] = append(at[pl.row], i)
	}
	longest := 0
	for r, examples := range at {
		slices.SortFunc(examples, func(a, b int) int { return int(p.places[a].seq - p.places[b].seq) })
		end := int32(0)
		for k, i := range examples {
			if pl := p.places[i]; pl.seq != int32(k+1) || pl.start != end {
				t.Fatalf("%s: row %d: example %d of it is number %d and starts at %d, expected %d", how, r, k+1, pl.seq, pl.start, end)
			}
			end += lengths[i]
		}
		if end == 0 || int(end) > rowLength {
			t.Fatalf("%s: row %d holds %d tokens, expected 1 to %d", how, r, end, rowLength)
		}
		longest = max(longest, int(end))
	}
	if !fixed && longest != rowLength {
		t.Fatalf("%s: rows are %d long and the fullest holds %d", how, rowLength, longest)
	}
	return rows, rowLength
}

func TestPackLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p packer
	for range 400 {
		limit := 1 + r.IntN(300)
		lengths := make([]int32, 1+r.IntN(100))
		for i := range lengths {
			lengths[i] = int32(1 + r.IntN(limit))
			if r.IntN(3) == 0 {
				lengths[i] = int32(1 + r.IntN(min(limit, 5)))
			}
		}
		for _, how := range packings {
			for _, fixed := range []bool{false, true} {
				checkPlaces(t, &p, how, lengths, limit, fixed)
				places := slices.Clone(p.places)
				fresh := packer{}
				fresh.pack(how, lengths, limit, fixed)
				if !slices.Equal(places, fresh.places) {
					t.Fatalf("%s: a used packer and a new one differ", how)
				}
			}
		}
	}
}

// naiveFirstFit and naiveBestFit are the textbook's forms of the two.
func naiveFirstFit(lengths []int32, limit int) []int32 {
	var used []int
	rowOf := make([]int32, len(lengths))
	for i, l := range lengths {
		r := slices.IndexFunc(used, func(u int) bool { return u+int(l) <= limit })
		if r < 0 {
			r = len(used)
			used = append(used, 0)
		}
		used[r] += int(l)
		rowOf[i] = int32(r)
	}
	return rowOf
}

func naiveBestFit(lengths []int32, limit int) (rowOf []int32, rows int) {
	rowOf = make([]int32, len(lengths))
	var used, since []int // tokens of a row, and when it came to have them
	for step, i := range longestFirst(lengths) {
		l := int(lengths[i])
		best := -1
		for r, u := range used {
			if u+l <= limit && (best < 0 || u > used[best] || u == used[best] && since[r] > since[best]) {
				best = r
			}
		}
		if best < 0 {
			best = len(used)
			used, since = append(used, 0), append(since, 0)
		}
		used[best] += l
		since[best] = step
		rowOf[i] = int32(best)
	}
	return rowOf, len(used)
}

func longestFirst(lengths []int32) []int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(lengths[b] - lengths[a]) })
	return order
}

// naiveTight is best-fit packing as docs/design/input.md tells it, example by example.
func naiveTight(lengths []int32, limit int, fixed bool) []int32 {
	rowOf, rows := naiveBestFit(lengths, limit)
	used := make([]int, rows)
	sum := 0
	for i, r := range rowOf {
		used[r] += int(lengths[i])
		sum += int(lengths[i])
	}
	ceil := func(a, b int) int { return (a + b - 1) / b }
	cells, least := rows*slices.Max(used), ceil(sum, limit)
	if fixed {
		for r := least; r < rows; r++ {
			if got := naiveFill(lengths, r, limit, r*limit-sum); got != nil {
				return got
			}
		}
		return rowOf
	}
	type shape struct{ rows, length int }
	from := 0
	tried := map[shape]bool{}
	for range tightTries {
		best := shape{}
		for i := range tightShapes {
			r := least + i*max(1, least/(2*tightShapes))
			for l := max(int(slices.Max(lengths)), ceil(sum, r)); l <= limit && r*l < cells; l++ {
				if r*l < from || tried[shape{r, l}] {
					continue
				}
				if best.rows == 0 || r*l < best.rows*best.length {
					best = shape{r, l}
				}
				break
			}
		}
		if best.rows == 0 {
			break
		}
		n := best.rows * best.length
		if got := naiveFill(lengths, best.rows, best.length, n-sum); got != nil {
			return got
		}
		tried[best] = true
		from = n + n/1024
	}
	return rowOf
}

func naiveFill(lengths []int32, rows, limit, spare int) []int32 {
	rowOf := make([]int32, len(lengths))
	left := longestFirst(lengths)
	for r := 0; r < rows && len(left) > 0; r++ {
		room, sum := limit, func(examples []int) (n int) {
			for _, i := range examples {
				n += int(lengths[i])
			}
			return n
		}
		var row, rest []int
		for _, i := range left {
			if l := int(lengths[i]); l <= room && len(rest) == 0 && room >= min(limit, tightRoom) {
				row, room = append(row, i), room-l
			} else if l <= room {
				rest = append(rest, i)
			}
		}
		// reach[s] are examples whose lengths have the sum s.
		reach := map[int][]int{0: nil}
		best, enough := 0, room-min(spare, tightShare*spare/(rows-r))
		for _, i := range rest {
			if best > 0 && best >= enough {
				break
			}
			more := map[int][]int{}
			for s, examples := range reach {
				n := s + int(lengths[i])
				if _, ok := reach[n]; !ok && n <= room {
					more[n] = append(slices.Clone(examples), i)
				}
			}
			for n, examples := range more {
				reach[n] = examples
				best = max(best, n)
			}
		}
		row = append(row, reach[best]...)
		if spare -= limit - sum(row); spare < 0 {
			return nil
		}
		for _, i := range row {
			rowOf[i] = int32(r)
		}
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(row, i) })
	}
	if len(left) > 0 {
		return nil
	}
	return rowOf
}

// lengthsOf tells what the rows hold, whichever of equally long examples do.
func lengthsOf(lengths, rowOf []int32) [][]int32 {
	rows := make([][]int32, slices.Max(rowOf)+1)
	for i, r := range rowOf {
		rows[r] = append(rows[r], lengths[i])
	}
	for _, r := range rows {
		slices.Sort(r)
	}
	return rows
}

func TestPackAgreesWithTheTextbook(t *testing.T) {
	var p packer
	r := rand.New(rand.NewPCG(3, 4))
	pairs := rowtest.MRPC(5)
	for round := range 600 {
		limit := 1 + r.IntN(200)
		lengths := make([]int32, 1+r.IntN(70))
		for i := range lengths {
			lengths[i] = int32(1 + r.IntN(limit))
		}
		if round%2 == 1 { // rows of many examples
			limit = 128 + r.IntN(400)
			lengths = pairs[r.IntN(len(pairs)-70):][:len(lengths)]
		}
		p.pack(PackFirstFit, lengths, limit, true)
		for i, row := range naiveFirstFit(lengths, limit) {
			if p.places[i].row != row {
				t.Fatalf("first fit of %v in %d puts example %d in row %d, expected %d", lengths, limit, i, p.places[i].row, row)
			}
		}
		for _, fixed := range []bool{false, true} {
			p.pack(PackBestFit, lengths, limit, fixed)
			got, want := lengthsOf(lengths, p.rowOf), lengthsOf(lengths, naiveTight(lengths, limit, fixed))
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Fatalf("best fit of %v in %d (fixed: %v) is %v, expected %v", lengths, limit, fixed, got, want)
			}
		}
	}
}

func TestPackOnOneRow(t *testing.T) {
	var p packer
	if rows, length := p.pack(PackBestFit, []int32{3, 5, 2}, 128, false); rows != 1 || length != 10 {
		t.Errorf("10 tokens make %d rows of %d, expected 1 of 10", rows, length)
	}
	if rows, length := p.pack(PackNone, []int32{3, 5, 2}, 128, false); rows != 3 || length != 5 {
		t.Errorf("one example per row makes %d rows of %d, expected 3 of 5", rows, length)
	}
}

// density returns the share of cells that hold tokens over all batches.
func density(how Packing, lengths []int32, batch, limit int, fixed bool) float64 {
	var p packer
	tokens, cells := 0, 0
	for b := range slices.Chunk(lengths, batch) {
		rows, length := p.pack(how, b, limit, fixed)
		cells += rows * length
		for _, l := range b {
			tokens += int(l)
		}
	}
	return float64(tokens) / float64(cells)
}

func TestDensityOnMRPC(t *testing.T) {
	lengths := append(append(rowtest.MRPC(1), rowtest.MRPC(2)...), rowtest.MRPC(3)...)
	for _, c := range []struct {
		how   Packing
		batch int
		limit int
		fixed bool
		least float64
	}{
		{PackBestFit, 32, 128, false, 0.974},
		{PackBestFit, 16, 128, false, 0.959},
		{PackBestFit, 256, 128, false, 0.98},
		{PackBestFit, 32, 256, false, 0.996},
		{PackBestFit, 32, 512, false, 0.998},
		{PackBestFit, 32, 128, true, 0.935},
		{PackFirstFit, 32, 128, false, 0.86},
		{PackNone, 32, 128, false, 0.60},
	} {
		d := density(c.how, lengths, c.batch, c.limit, c.fixed)
		t.Logf("%-9s batch %3d, rows of at most %d, fixed %5v: %.4f", c.how, c.batch, c.limit, c.fixed, d)
		if d < c.least {
			t.Errorf("%s, batch %d, rows of %d: density is %.4f, expected at least %.3f", c.how, c.batch, c.limit, d, c.least)
		}
	}
}

// TestDensityOfParts logs how full the rows of micro-batches are: those that are as long
// as they come have no padding.
func TestDensityOfParts(t *testing.T) {
	lengths := rowtest.MRPC(1)
	for _, c := range []struct {
		parts, longRows int
		least           float64
	}{{2, 0, 0.967}, {4, 0, 0.955}, {2, 4096, 1}, {4, 4096, 1}} {
		tokens, cells := 0, 0
		for some := range slices.Chunk(lengths, 32) {
			examples := make([]Example, len(some))
			for i, n := range some {
				examples[i] = Example{IDs: make([]int32, n), Labeled: true}
			}
			cfg := Config{RowLength: 128}
			b, err := FromExamples(cfg, examples)
			if err != nil {
				t.Fatal(err)
			}
			parts, err := cfg.Divide(b, c.parts, c.longRows)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				tokens += p.Tokens
				cells += p.Rows * p.RowLength
			}
		}
		d := float64(tokens) / float64(cells)
		t.Logf("%d parts of 32 examples, rows of at most %d: %.4f", c.parts, max(128, c.longRows), d)
		if d < c.least {
			t.Errorf("%d parts, rows of at most %d: density is %.4f, expected at least %.3f", c.parts, max(128, c.longRows), d, c.least)
		}
	}
}

func FuzzPack(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 4, 5}, uint16(5), false)
	f.Add([]byte{0, 1, 1, 1}, uint16(0), true)
	f.Add([]byte{2, 200, 255, 7}, uint16(299), false)
	var p packer
	f.Fuzz(func(t *testing.T, b []byte, max uint16, fixed bool) {
		if len(b) < 2 {
			return
		}
		limit := int(max)%1024 + 1
		lengths := make([]int32, 0, len(b))
		for i, v := range b[1:] {
			lengths = append(lengths, int32((int(v)+i%3*256)%limit+1))
		}
		checkPlaces(t, &p, packings[int(b[0])%len(packings)], lengths, limit, fixed)
	})
}

func BenchmarkPack(b *testing.B) {
	lengths := rowtest.MRPC(1)
	for _, how := range []Packing{PackBestFit, PackFirstFit} {
		for _, size := range []int{32, 256, 2048} {
			b.Run(string(how)+"/"+strconv.Itoa(size), func(b *testing.B) {
				var p packer
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					for batch := range slices.Chunk(lengths, size) {
						p.pack(how, batch, 128, false)
						n += len(batch)
					}
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "examples/s")
			})
		}
	}
}
