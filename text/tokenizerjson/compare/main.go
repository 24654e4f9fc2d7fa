// Command compare encodes texts with a tokenizer.json, for compare.py, which compares the tokens with those
// of the Python library.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// answer is what compare.py compares.
type answer struct {
	IDs     []int32   `json:"ids"`
	Offsets [][2]int  `json:"offsets"` // characters
	Texts   [2]string `json:"texts"`   // decoded, with and without special tokens
	Pair    []int32   `json:"pair"`    // of the text with itself, with special tokens, cut to 20
	Types   []int32   `json:"types"`
}

// mostCut is how many characters make a text too long for pairs.
const mostCut = 1000

// run answers each line of standard input, a text as base64 in JSON, with a line.
func run() error {
	t, err := tokenizerjson.Load(os.Args[1])
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	for in.More() {
		var raw []byte
		if err := in.Decode(&raw); err != nil {
			return err
		}
		s := string(raw)
		tokens, _ := t.AppendTokens(nil, s, math.MaxInt)
		a := answer{IDs: t.AppendIDs([]int32{}, s), Offsets: [][2]int{}}
		if len(tokens) != len(a.IDs) {
			return fmt.Errorf("%q has %d tokens with spans and %d without", s, len(tokens), len(a.IDs))
		}
		before := make([]int, len(s)+1) // characters before each byte, and the end
		for i := range s {
			before[i] = 1
		}
		chars := 0
		for i, n := range before {
			before[i] = chars
			chars += n
		}
		for i, token := range tokens {
			if token.ID != a.IDs[i] {
				return fmt.Errorf("%q: token %d is %d with spans and %d without", s, i, token.ID, a.IDs[i])
			}
			a.Offsets = append(a.Offsets, [2]int{before[token.Start], before[token.End]})
		}
		a.Texts = [2]string{t.Decode(a.IDs, true), t.Decode(a.IDs, false)}
		e := t.Encode(s, s, 20)
		a.Pair, a.Types = e.IDs, e.TypeIDs
		if len(e.IDs) == 0 || s == "" || utf8.RuneCountInString(s) >= mostCut {
			a.Pair, a.Types = []int32{}, []int32{}
		}
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		out.Write(append(line, '\n'))
	}
	return out.Flush()
}
