package convert

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
)

var (
	benchText  = flag.String("text", "", "TSV file with the columns text and label that BenchmarkRun converts")
	benchVocab = flag.String("vocab", "", "vocabulary for it")
)

// BenchmarkRun converts a file of the caller's, and before each conversion encodes its
// texts, which are in memory, on as many goroutines, to be held against it.
func BenchmarkRun(b *testing.B) {
	if *benchText == "" || *benchVocab == "" {
		b.Skip("-text and -vocab name no files")
	}
	cfg := Config{
		Inputs: []Input{{Path: *benchText, Split: Train}},
		Vocab:  *benchVocab, TextColumn: "text", LabelColumn: "label", Tokenizer: text.Config{Lowercase: true},
	}
	texts := benchTexts(b, &cfg)
	v, err := text.LoadVocab(*benchVocab)
	if err != nil {
		b.Fatal(err)
	}
	tok, err := text.NewTokenizer(v, cfg.Tokenizer)
	if err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(*benchText)
	if err != nil {
		b.Fatal(err)
	}
	for _, workers := range []int{1, 2} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			cfg := cfg
			cfg.Workers = workers
			dir := b.TempDir()
			b.SetBytes(info.Size())
			var alone, aloneUsed, used time.Duration
			for b.Loop() {
				b.StopTimer()
				start, cpu := time.Now(), processorTime(b)
				encodeAll(tok, texts, workers)
				alone += time.Since(start)
				cpu, aloneUsed = processorTime(b), aloneUsed+processorTime(b)-cpu
				b.StartTimer()
				cfg.Out = filepath.Join(dir, "out")
				if _, err := Run(context.Background(), cfg, quiet); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				used += processorTime(b) - cpu
				if err := os.RemoveAll(cfg.Out); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(info.Size())*float64(b.N)/1e6/alone.Seconds(), "tokenizer-MB/s")
			b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s")
			b.ReportMetric(aloneUsed.Seconds()/float64(b.N), "tokenizer-cpu-s")
		})
	}
}

// benchTexts returns the texts of the file.
func benchTexts(b *testing.B, cfg *Config) []string {
	t, err := openTable(b.Context(), cfg, *benchText, []table.Column{{Name: "text"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	c := t.NewCutter()
	var texts []string
	for {
		row, line, _, err := t.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			b.Fatal(err)
		}
		fields, err := c.Cut(string(row), line)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, strings.Clone(fields[0].Text))
	}
}

// encodeAll encodes texts on some goroutines.
func encodeAll(tok *text.Tokenizer, texts []string, workers int) {
	var wg sync.WaitGroup
	for some := range slices.Chunk(texts, (len(texts)+workers-1)/workers) {
		wg.Go(func() {
			var e text.Encoding
			for _, s := range some {
				tok.EncodeInto(&e, s, "", DefaultMaxLength)
			}
		})
	}
	wg.Wait()
}

// processorTime returns what the process has used of all processors, which other
// programs on the machine disturb less than the time that passes.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
