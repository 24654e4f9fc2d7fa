package dataset

import (
	"fmt"
	"strconv"
	"strings"
)

// Growth is batch sizes that grow in the course of a run: a batch that begins after so many records,
// of all epochs, has the size of the last stage that begins there or before. It has BatchSize after the
// last stage, which is that size. An epoch ends as without growth, so its last batch may be smaller.
type Growth []Stage

// Stage is a batch size from a number of records on.
type Stage struct {
	Records int64
	Size    int
}

// mostDrawn is more records than any growth takes: it keeps sums within 64 bits.
const mostDrawn = 1 << 53

// String returns the stages as in "0:8,4000:16".
func (g Growth) String() string {
	var words []string
	for _, s := range g {
		words = append(words, fmt.Sprintf("%d:%d", s.Records, s.Size))
	}
	return strings.Join(words, ",")
}

// parseGrowth is the inverse of String, for what String has written.
func parseGrowth(text string) (g Growth) {
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		records, size, _ := strings.Cut(word, ":")
		var s Stage
		s.Records, _ = strconv.ParseInt(records, 10, 64)
		s.Size, _ = strconv.Atoi(size)
		g = append(g, s)
	}
	return g
}

// validate checks the growth to a batch size.
func (g Growth) validate(batchSize int) error {
	for i, s := range g {
		switch {
		case i == 0 && s.Records != 0:
			return fmt.Errorf("batches grow from record %d on; expected a first size from record 0 on", s.Records)
		case s.Size < 1 || s.Records > mostDrawn:
			return fmt.Errorf("batches have size %d from record %d on; expected 1 or more, from record 0 to %d on", s.Size, s.Records, int64(mostDrawn))
		case i > 0 && (s.Records <= g[i-1].Records || s.Size <= g[i-1].Size):
			return fmt.Errorf("batches have size %d from record %d on, after size %d from record %d on; expected more of both", s.Size, s.Records, g[i-1].Size, g[i-1].Records)
		}
	}
	if n := len(g); n > 0 && g[n-1].Size != batchSize {
		return fmt.Errorf("batches grow to size %d; expected the batch size, %d", g[n-1].Size, batchSize)
	}
	return nil
}

// at returns the size of the batch that begins after so many records.
func (g Growth) at(drawn int64) int64 {
	size := g[0].Size
	for _, s := range g[1:] {
		if s.Records > drawn {
			break
		}
		size = s.Size
	}
	return int64(size)
}

// end returns the number of records from which on the size stays.
func (g Growth) end() int64 {
	if len(g) == 0 {
		return 0
	}
	return g[len(g)-1].Records
}

// settled returns the first epoch of which all batches have the size at which the growth ends.
func (g Growth) settled(records int64) int64 { return (g.end() + records - 1) / records }

// sizeAt returns the size of the batch at a position in the data.
func (s Settings) sizeAt(g Growth, epoch, position int64) int64 {
	if len(g) == 0 || epoch >= g.settled(s.Records) {
		return int64(s.BatchSize)
	}
	return g.at(epoch*s.Records + position)
}

// walk returns the number of batches of an epoch up to a position, and the end of the last one, which is
// the position if a batch ends there. With the number of records as the position, it is the number of
// batches of the epoch.
func (s Settings) walk(g Growth, epoch, to int64) (batches, at int64) {
	for at < to {
		size := s.sizeAt(g, epoch, at)
		if s.DropRemainder && s.Records-at < size {
			break
		}
		n := max(1, (to-at)/size)
		for _, stage := range g {
			if left := stage.Records - (epoch*s.Records + at); left > 0 {
				n = min(n, (left+size-1)/size) // the size stays until then
				break
			}
		}
		at = min(at+n*size, s.Records)
		batches += n
	}
	return batches, at
}

// batchesIn returns the number of batches of the first epochs, with a share of the last one if the number
// is not whole.
func (s Settings) batchesIn(g Growth, epochs float64) (sum float64) {
	settled := min(float64(g.settled(s.Records)), epochs)
	for e := 0; float64(e) < settled; e++ {
		n, _ := s.walk(g, int64(e), s.Records)
		sum += min(1, epochs-float64(e)) * float64(n)
	}
	if whole := float64(g.settled(s.Records)); epochs > whole {
		sum += (epochs - whole) * float64(s.batches())
	}
	return sum
}

// MostBatches returns at least the number of batches of any epoch. The first has the most if they grow.
func (d *Dataset) MostBatches() int64 {
	switch {
	case len(d.cfg.Growth) == 0:
		return d.BatchesPerEpoch()
	case d.fit != nil:
		return d.settings.Records
	}
	n, _ := d.settings.walk(d.cfg.Growth, 0, d.settings.Records)
	return n
}

// EpochsAt returns how many epochs a number of batches are. With batches of a fixed size it is near that.
func (d *Dataset) EpochsAt(batches int64) float64 {
	left := batches
	settled := d.cfg.Growth.settled(d.settings.Records)
	for e := range settled {
		n, _ := d.settings.walk(d.cfg.Growth, e, d.settings.Records)
		if left < n {
			return float64(e) + float64(left)/float64(n)
		}
		left -= n
	}
	return float64(settled) + float64(left)/float64(max(1, d.BatchesPerEpoch()))
}
