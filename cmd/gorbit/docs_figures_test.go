package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestReadmeFigures checks the speeds in README.md, by processor, against the benchmark's tables.
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
		if ratio == nil || strings.HasSuffix(cells[0], "bf16") {
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
	_, processors, ok := strings.Cut(read("README.md"), "| processor |")
	if !ok {
		t.Fatal("README.md has no table by processor")
	}
	rows, _, _ := strings.Cut(processors, "\n\n")
	if want := fmt.Sprintf("| AMD EPYC (Zen 4) | %.2f | %.2f, %.2f |", least["Hugging Face"], least["Orbit"], least["Keras"]); !strings.Contains(rows, want) {
		t.Errorf("README.md lacks %q, which the table has:\n%s", want, rows)
	}
	measurements := read("docs/measurements/benchmarks.md")
	for row := range strings.Lines(rows) {
		if row = strings.TrimSpace(row); strings.HasSuffix(row, "|") && !strings.Contains(measurements, row) {
			t.Errorf("benchmarks.md lacks README.md's row %s", row)
		}
	}
}
