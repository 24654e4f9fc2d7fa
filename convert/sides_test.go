package convert

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// TestSides holds the records of sources and targets against what package tfrecord writes.
func TestSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r recorder
	for number := range int64(50) {
		var ids [2][]int32
		var wide [2][]int64
		for side := range ids {
			for range 1 + random.IntN(300) {
				id := random.Int32N(1 << (1 + random.IntN(23)))
				ids[side], wide[side] = append(ids[side], id), append(wide[side], int64(id))
			}
		}
		want, err := tfrecord.AppendExample(nil, tfrecord.Int64Feature(ExampleID, number), tfrecord.Int64Feature(InputIDs, wide[0]...), tfrecord.Int64Feature(TargetIDs, wide[1]...))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.sides(number, ids[0], ids[1]); !bytes.Equal(got, want) {
			t.Fatalf("record %d differs", number)
		}
	}
}

// TestSidesAsTransformers holds the tokens of sources and targets against those that transformers makes for
// training (testdata/sides.py), also of texts that are cut.
func TestSidesAsTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "sides.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Prefix          string
		MaxLength       int `json:"max_length"`
		MaxTargetLength int `json:"max_target_length"`
		Tokenizers      []struct {
			Tokenizer string
			Cases     []struct {
				Source    string  `json:"source"`
				Target    string  `json:"target"`
				InputIDs  []int32 `json:"input_ids"`
				TargetIDs []int32 `json:"target_ids"`
			}
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	for _, g := range golden.Tokenizers {
		rows, cut := "", int64(0)
		var sources, targets [][]int32
		for _, c := range g.Cases {
			line, err := json.Marshal(map[string]string{"source": c.Source, "target": c.Target})
			if err != nil {
				t.Fatal(err)
			}
			rows += string(line) + "\n"
			sources, targets = append(sources, c.InputIDs), append(targets, c.TargetIDs)
			if len(c.TargetIDs) == golden.MaxTargetLength {
				cut++
			}
		}
		cfg := in(write(t, map[string]string{"x.jsonl": rows}), Config{Task: "seq2seq", MaxLength: golden.MaxLength, MaxTargetLength: golden.MaxTargetLength,
			SourceColumn: "source", TargetColumn: "target", Prefix: golden.Prefix, Inputs: []Input{{Train, "x.jsonl"}}})
		cfg.Vocab = filepath.Join("..", "text", "tokenizerjson", "testdata", g.Tokenizer)
		m := mustRun(t, cfg)
		if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, sources) {
			t.Errorf("%s: sources are %v, expected %v", g.Tokenizer, got, sources)
		}
		if got := numbersOf(t, cfg, Train, TargetIDs); !reflect.DeepEqual(got, targets) {
			t.Errorf("%s: targets are %v, expected %v", g.Tokenizer, got, targets)
		}
		last := targets[0][len(targets[0])-1]
		if got := m.Splits[Train].TruncatedTargets; got == 0 || got > cut || m.TargetEnd == nil || *m.TargetEnd != last {
			t.Errorf("%s: %d targets are cut of up to %d, and end with %v; expected %d", g.Tokenizer, got, cut, m.TargetEnd, last)
		}
	}
}
