// Command bench is the Go half of compare.py, which compares the speed and the ids of
// the tokenizer with those of the tokenizers library.
//
//	bench -vocab vocab.txt FILE       encodes the lines of FILE on one goroutine
//	bench -vocab vocab.txt -ids       reads {"a", "b", "max_len"} per line, writes ids
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

func main() {
	vocab := flag.String("vocab", "vocab.txt", "vocabulary, or a tokenizer.json")
	config := flag.String("config", `{"Lowercase": true}`, "text.Config as JSON")
	ids := flag.Bool("ids", false, "answer requests on standard input with ids")
	maxLen := flag.Int("max-len", 128, "maximum number of ids of a text")
	repeat := flag.Int("repeat", 3, "number of rounds; the fastest counts")
	batch := flag.Bool("batch", false, "encode batches on all cores instead of one goroutine")
	flag.Parse()
	if err := run(*vocab, *config, *ids, *maxLen, *repeat, *batch, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(vocab, config string, ids bool, maxLen, repeat int, batch bool, file string) error {
	var cfg text.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("-config: %w", err)
	}
	start := time.Now()
	tok, err := load(vocab, cfg)
	if err != nil {
		return err
	}
	loaded := time.Since(start)
	if ids {
		return answer(tok)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	pairs := make([]text.Pair, len(lines))
	for i, s := range lines {
		pairs[i].A = s
	}
	tokens, best, bestCPU := 0, time.Duration(1<<62), time.Duration(1<<62)
	var e text.Encoding
	for range repeat {
		tokens, start = 0, time.Now()
		cpu := cpuTime()
		if batch {
			for _, e := range tok.EncodeBatch(pairs, maxLen) {
				tokens += len(e.IDs)
			}
		} else {
			for _, s := range lines {
				tok.EncodeInto(&e, s, "", maxLen)
				tokens += len(e.IDs)
			}
		}
		best = min(best, time.Since(start))
		bestCPU = min(bestCPU, cpuTime()-cpu)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"sentences":         len(lines),
		"tokens":            tokens,
		"seconds":           best.Seconds(),
		"sentences_per_sec": float64(len(lines)) / best.Seconds(),
		"sentences_per_cpu": float64(len(lines)) / bestCPU.Seconds(),
		"mb_per_sec":        float64(len(data)) / best.Seconds() / 1e6,
		"load_ms":           float64(loaded.Microseconds()) / 1e3,
	})
}

// load reads a vocab.txt or a tokenizer.json.
func load(path string, cfg text.Config) (*text.Tokenizer, error) {
	if strings.HasSuffix(path, ".json") {
		return tokenizerjson.Load(path)
	}
	v, err := text.LoadVocab(path)
	if err != nil {
		return nil, err
	}
	return text.NewTokenizer(v, cfg)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// answer encodes one request per line.
func answer(tok *text.Tokenizer) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for dec.More() {
		var q struct {
			A, B   string
			MaxLen int `json:"max_len"`
		}
		if err := dec.Decode(&q); err != nil {
			return err
		}
		e := tok.Encode(q.A, q.B, q.MaxLen)
		if err := enc.Encode([2][]int32{e.IDs, e.TypeIDs}); err != nil {
			return err
		}
	}
	return out.Flush()
}
