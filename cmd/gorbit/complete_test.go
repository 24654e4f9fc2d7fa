package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompletion asks as shells do, through the hidden command of cobra's scripts.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"runs/a/params.yaml", "runs/b/params.yaml", "runs/b/checkpoints/ckpt-20.index", "runs/b/checkpoints/ckpt-40.index", "runs/notes/text", "data/manifest.json"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for typed, want := range map[string][]string{
		"tr":                                    {"track", "train"},
		"train --schedule c":                    {"constant", "cosine", "cosine_with_restarts"},
		"train --strategy m":                    {"mirrored", "multiworker"},
		"train --on-corrupt ":                   {"fail", "skip"},
		"train --set optimizer.warm":            {"optimizer.warmup_ratio=", "optimizer.warmup_steps="},
		"train --set optimizer.schedule=l":      {"optimizer.schedule=linear"},
		"train --set summary.enabled=":          {"summary.enabled=true", "summary.enabled=false"},
		"train --run r":                         {"runs/"},
		"evaluate --run runs/":                  {"runs/a", "runs/b"},
		"watch runs/b":                          {"runs/b"},
		"export --run runs/b --checkpoint ":     {"latest", "best", "best-or-latest", "20", "40"},
		"predict --run runs/a --checkpoint lat": {"latest"},
		"convert --task st":                     {"stsb"},
		"convert --compression g":               {"gzip"},
		"export --format ":                      {"savedmodel", "huggingface"},
		"--log-level w":                         {"warn"},
		"train --epochs ":                       nil,
	} {
		root := newRoot()
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&strings.Builder{})
		root.SetArgs(append([]string{"__complete"}, strings.Split(typed, " ")...))
		if err := root.Execute(); err != nil {
			t.Errorf("%q: %v", typed, err)
			continue
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if !strings.HasPrefix(word, ":") { // the directive
				got = append(got, word)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", typed, got, want)
		}
		if strings.Contains(out.String(), "`") {
			t.Errorf("%q: a description has back quotes: %s", typed, out.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		root := newRoot()
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs([]string{"completion", shell})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "gorbit") || !strings.Contains(out.String(), "__complete") {
			t.Errorf("the script of %s has %d bytes: %v", shell, out.Len(), err)
		}
	}
}
