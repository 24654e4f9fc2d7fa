package record

import (
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Measured is the event file of training, with the memory of this process and the share of padding
// in the batches since the last summary added to each summary. It implements runner.Summaries.
type Measured struct {
	*Events
	// Fill counts how full the batches are.
	Fill    *loop.Filling
	told    [2]int64 // what fill had at the last summary
	step    int64
	scalars bool // since the last Flush
}

// Scalar implements runner.Summaries.
func (m *Measured) Scalar(tag string, step int64, value float64) {
	m.step, m.scalars = step, true
	m.Events.Scalar(tag, step, value)
}

// Flush implements runner.Summaries. It ends a summary.
func (m *Measured) Flush() error {
	if m.scalars {
		m.scalars = false
		if bytes := Memory(); bytes > 0 {
			m.Events.Scalar("memory_mib", m.step, words.Rounded(float64(bytes)/(1<<20), 1))
		}
		now := m.Fill.Read()
		if tokens, cells := now[0]-m.told[0], now[1]-m.told[1]; cells > 0 {
			m.Events.Scalar("padding_percent", m.step, 100*(1-float64(tokens)/float64(cells)))
		}
		m.told = now
	}
	return m.Events.Flush()
}
