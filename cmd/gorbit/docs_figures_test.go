package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestReadmeFigures checks the speeds in README.md against the benchmark's table.
func TestReadmeFigures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(testkit.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, table, ok := strings.Cut(read("docs/measurements/benchmarks.md"), "<!-- bench:begin train-minilm-mrpc -->")
	if !ok {
		t.Fatal("benchmarks.md has no table of minilm with MRPC's lengths")
	}
	table, _, _ = strings.Cut(table, "<!-- bench:end")
	least := map[string]float64{} // a peer's best setting
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		ratio := regexp.MustCompile(`^([0-9.]+) \(.*times$`).FindStringSubmatch(cells[min(4, len(cells)-1)])
		if ratio == nil {
			continue
		}
		value, err := strconv.ParseFloat(ratio[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, peer := range []string{"Orbit", "Keras", "Hugging Face"} {
			if strings.HasPrefix(cells[0], "| "+peer) && (least[peer] == 0 || value < least[peer]) {
				least[peer] = value
			}
		}
	}
	readme := strings.Join(strings.Fields(read("README.md")), " ")
	for _, tt := range []struct {
		claim string
		peers []string
	}{
		{`([0-9.]+) times the Hugging Face Trainer's best setting`, []string{"Hugging Face"}},
		{`([0-9.]+) times Orbit and Keras`, []string{"Orbit", "Keras"}},
	} {
		match := regexp.MustCompile(tt.claim).FindStringSubmatch(readme)
		if match == nil {
			t.Errorf("README.md does not say %s", tt.claim)
			continue
		}
		claimed, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		slowest := least[tt.peers[0]]
		for _, peer := range tt.peers {
			slowest = min(slowest, least[peer])
		}
		if slowest == 0 || claimed > slowest || claimed < slowest-0.1 {
			t.Errorf("README.md says %q; the table has %v", match[0], slowest)
		}
	}
}
