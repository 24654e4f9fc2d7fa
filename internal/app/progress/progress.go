// Package progress shows the progress of a run as a bar on the last line of a terminal, with log
// lines scrolling above it. Without a terminal it shows no bar and passes the lines through
// unchanged.
//
// The bar looks like
//
//	train  52% [=========>          ] (180/345) 0:53 left, loss 0.4321, 3.1 steps/s, 99 examples/s, epoch 2
//
// and has fewer facts on a narrow terminal. The width is looked at for each drawing.
//
// Rates are averages over the time spent in the phase, without nested phases such as an evaluation
// during training. The remaining time is computed from them.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/runner"
)

const (
	// redrawInterval is the time between two drawings of the bar; steps in between are
	// counted but not drawn.
	redrawInterval = 100 * time.Millisecond

	barWidth       = 20
	narrowBarWidth = 10 // on terminals of fewer columns than wideTerminal
	wideTerminal   = 100

	eraseLine = "\r\x1b[K"
)

// Bar is a runner.Observer that draws a bar on a terminal. It is safe for concurrent use.
type Bar struct {
	mu      sync.Mutex
	out     io.Writer  // the terminal; nil if there is none
	columns func() int // its width
	phases  []*phase   // innermost last
	drawn   bool       // the bar is on the terminal's last line
	drawnAt time.Time
	midLine bool // the last write above the bar did not end with a newline
}

var _ runner.Observer = (*Bar)(nil)

// phase is training or an evaluation.
type phase struct {
	name     string
	total    int64
	last     runner.StepInfo
	steps    int64 // done in this phase; a rollback does not reduce it
	examples int64
	reading  bool // files, by bytes and rows, instead of steps
	rows     int64
	spent    time.Duration // time in this phase before since
	since    time.Time
}

// New returns a bar on f, usually standard error. The bar is drawn only if f is a terminal that can
// erase a line, and the environment variable CI is not set, empty or "false".
func New(f *os.File) *Bar {
	ci := os.Getenv("CI")
	if !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" || ci != "" && ci != "false" {
		return &Bar{}
	}
	return newBar(f, func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return 80
		}
		return width
	})
}

func newBar(out io.Writer, columns func() int) *Bar { return &Bar{out: out, columns: columns} }

// Writer returns a writer to w for text above the bar. It erases the bar before each write and
// draws it again after a newline. While the bar is in use, everything written to its terminal must
// go through such a writer.
func (b *Bar) Writer(w io.Writer) io.Writer {
	if b.out == nil {
		return w
	}
	return above{b, w}
}

type above struct {
	bar *Bar
	w   io.Writer
}

func (a above) Write(p []byte) (int, error) {
	b := a.bar
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	n, err := a.w.Write(p)
	if n > 0 {
		b.midLine = !bytes.HasSuffix(p[:n], []byte("\n"))
	}
	b.draw()
	return n, err
}

// Begin implements runner.Observer.
func (b *Bar) Begin(name string, step, total int64) {
	if b.out == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if n := len(b.phases); n > 0 {
		outer := b.phases[n-1]
		outer.spent += now.Sub(outer.since)
	}
	b.phases = append(b.phases, &phase{name: name, total: total, last: runner.StepInfo{Step: step}, since: now})
	b.draw()
}

// Step implements runner.Observer.
func (b *Bar) Step(info runner.StepInfo) {
	if b.out == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.phases) == 0 {
		return
	}
	p := b.phases[len(b.phases)-1]
	p.last = info
	p.steps++
	p.examples += int64(info.Examples)
	if !b.drawn || time.Since(b.drawnAt) >= redrawInterval || info.Step == p.total {
		b.draw()
	}
}

// End implements runner.Observer. The bar of the outermost phase disappears.
func (b *Bar) End() {
	if b.out == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.phases) == 0 {
		return
	}
	b.phases = b.phases[:len(b.phases)-1]
	if n := len(b.phases); n > 0 {
		b.phases[n-1].since = time.Now()
	}
	b.erase()
	b.draw()
}

// Read shows how much of files was read: bytes of total, which have been so many rows. The first call
// begins the phase; End ends it.
func (b *Bar) Read(name string, bytes, total, rows int64) {
	if b.out == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.phases) == 0 {
		b.phases = append(b.phases, &phase{name: name, since: time.Now()})
	}
	p := b.phases[0]
	if bytes < p.last.Step { // reading begins again
		p.since = time.Now()
	}
	p.total, p.last.Step, p.rows, p.reading = total, bytes, rows, true
	if !b.drawn || time.Since(b.drawnAt) >= redrawInterval {
		b.draw()
	}
}

// erase removes the bar from the terminal. Errors of drawing are ignored, because they must not end
// a run.
func (b *Bar) erase() {
	if b.drawn {
		_, _ = io.WriteString(b.out, eraseLine)
		b.drawn = false
	}
}

func (b *Bar) draw() {
	if len(b.phases) == 0 || b.midLine {
		return
	}
	now, columns := time.Now(), b.columns()
	width := barWidth
	if columns < wideTerminal {
		width = narrowBarWidth
	}
	line := b.phases[len(b.phases)-1].line(now, width, max(columns-1, 0))
	_, _ = io.WriteString(b.out, eraseLine+line)
	b.drawn, b.drawnAt = true, now
}

// line is the text of the bar, with as many facts as fit in so many columns.
func (p *phase) line(now time.Time, width, columns int) string {
	head := fmt.Sprintf("%s (%d)", p.name, p.last.Step)
	if p.total > 0 {
		head = p.name + bar(p.last.Step, p.total, width, !p.reading)
	}
	var facts []string
	fact := func(format string, args ...any) { facts = append(facts, fmt.Sprintf(format, args...)) }
	if seconds := now.Sub(p.since).Seconds(); p.reading && seconds > 0 && p.last.Step > 0 {
		fact("%s left", clock(float64(max(0, p.total-p.last.Step))*seconds/float64(p.last.Step)))
		fact("%s MB/s", rate(float64(p.last.Step)/1e6/seconds))
		fact("%s rows/s", rate(float64(p.rows)/seconds))
	}
	if p.steps > 0 {
		seconds := (p.spent + now.Sub(p.since)).Seconds()
		if left := p.total - p.last.Step; p.total > 0 && left >= 0 {
			fact("%s left", clock(float64(left)*seconds/float64(p.steps)))
		}
		fact("loss %.4g", p.last.Loss)
		if seconds > 0 {
			fact("%s steps/s", rate(float64(p.steps)/seconds))
			if p.examples > 0 {
				fact("%s examples/s", rate(float64(p.examples)/seconds))
			}
		}
	}
	if p.last.Epoch > 0 {
		fact("epoch %d", p.last.Epoch+1)
	}
	line := head[:min(len(head), columns)] // ASCII throughout
	for i, fact := range facts {
		if i == 0 {
			fact = " " + fact
		} else {
			fact = ", " + fact
		}
		if len(line)+len(fact) > columns {
			break
		}
		line += fact
	}
	return strings.TrimRight(line, " ")
}

// rate formats a number per second to three digits or as a whole number.
func rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// bar renders the percentage, the bar and, if wanted, the count. It makes a new bar each time because steps go
// backwards at a rollback.
func bar(step, total int64, width int, count bool) string {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(io.Discard),
		progressbar.OptionSetWidth(width),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetTheme(progressbar.Theme{
			Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "[", BarEnd: "]",
		}),
	}
	if count {
		options = append(options, progressbar.OptionShowCount())
	}
	p := progressbar.NewOptions64(total, options...)
	if err := p.Set64(min(max(step, 0), total)); err != nil {
		return fmt.Sprintf(" (%d/%d)", step, total)
	}
	return strings.TrimRight(strings.TrimPrefix(p.String(), "\r"), " ")
}

// clock formats seconds as 0:53 or 1:02:03.
func clock(seconds float64) string {
	if !(seconds < 1e9) {
		return "forever"
	}
	s := int64(seconds + 0.5)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
