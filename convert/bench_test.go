package convert

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
)

var (
	benchText  = flag.String("text", "", "TSV file with the columns text and label that BenchmarkRun converts")
	benchVocab = flag.String("vocab", "", "vocabulary for it")
)

// BenchmarkRun converts a file of the caller's.
func BenchmarkRun(b *testing.B) {
	if *benchText == "" || *benchVocab == "" {
		b.Skip("-text and -vocab name no files")
	}
	info, err := os.Stat(*benchText)
	if err != nil {
		b.Fatal(err)
	}
	for _, workers := range []int{1, 2} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(info.Size())
			rows, i := int64(0), 0
			for ; b.Loop(); i++ {
				out := filepath.Join(dir, strconv.Itoa(i))
				m, err := Run(context.Background(), Config{
					Inputs: []Input{{Path: *benchText, Split: Train}},
					Vocab:  *benchVocab, Out: out, TextColumn: "text", LabelColumn: "label", Tokenizer: text.Config{Lowercase: true}, Workers: workers,
				}, quiet)
				if err != nil {
					b.Fatal(err)
				}
				rows += m.Splits[Train].Records
				if err := os.RemoveAll(out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
