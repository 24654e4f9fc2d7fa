package convert

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
)

// TestCrashAnywhere crashes a conversion at every file operation.
func TestCrashAnywhere(t *testing.T) {
	in := t.TempDir()
	files := map[string]string{
		"vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n",
		"train.tsv": "sentence\tlabel\ngood film\tyes\nbad film\tno\nfilm\tyes\nbad\tno\ngood\tyes\n",
		"dev.tsv":   "sentence\tlabel\nbad bad film\tno\ngood good\tyes\n",
		"old.tsv":   "sentence\tlabel\nbad\tno\nfilm\tyes\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(in, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := func(dir string) Config {
		cfg := Config{Vocab: filepath.Join(in, "vocab.txt"), Out: filepath.Join(dir, "data"), Workers: 1, Shards: 2, Shuffle: true, Seed: 3,
			Inputs: []Input{{Split: Train, Path: filepath.Join(in, "train.tsv")}, {Split: Dev, Path: filepath.Join(in, "dev.tsv")}}}
		cfg.TextColumn, cfg.LabelColumn = "sentence", "label"
		return cfg
	}
	run := func(cfg Config) error {
		_, err := Run(context.Background(), cfg, slog.New(slog.DiscardHandler))
		return err
	}
	exists := func(err error) bool { e := (*ExistsError)(nil); return errors.As(err, &e) }
	phase := func(operation string) string {
		switch {
		case strings.Contains(operation, asideName):
			return "made aside"
		case operation == "":
			return "after the end"
		}
		return "moved into place"
	}
	t.Run("new", func(t *testing.T) {
		crashtest.Survives(t, crashtest.Program{Run: func(dir string) error { return run(config(dir)) }, Complete: exists, Phase: phase})
	})
	t.Run("blocks", func(t *testing.T) {
		crashtest.Survives(t, crashtest.Program{Run: func(dir string) error {
			cfg := config(dir)
			cfg.Task, cfg.LabelColumn, cfg.Blocks, cfg.MaxLength, cfg.WordStarts = string(MaskedLM), "", KeepDocuments, 4, true
			return run(cfg)
		}, Complete: exists, Phase: phase})
	})
	t.Run("overwrite", func(t *testing.T) {
		crashtest.Survives(t, crashtest.Program{
			Prepare: func(dir string) error {
				cfg := config(dir)
				cfg.Shards, cfg.Inputs = 3, []Input{{Split: Train, Path: filepath.Join(in, "old.tsv")}, {Split: "test", Path: filepath.Join(in, "old.tsv")}}
				return run(cfg)
			},
			Run: func(dir string) error {
				cfg := config(dir)
				cfg.Overwrite = true
				return run(cfg)
			},
			Phase: phase,
		})
	})
}
