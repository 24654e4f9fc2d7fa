package tokenizerjson

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text/bpe"
)

// decoder makes the text of tokens; the texts that it returns are put one after the other.
type decoder func(tokens []string) []string

func decoderOf(raw json.RawMessage) (decoder, error) {
	name, err := typeOf(raw, "decoder")
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		return sequenceDecoder(raw)
	case "ByteLevel":
		_, err := newByteLevel(raw)
		return func(tokens []string) []string {
			var b []byte
			for _, t := range tokens {
				b = bpe.AppendBytes(b, t)
			}
			return []string{lossy(b)}
		}, err
	case "WordPiece":
		return wordPieceDecoder(raw)
	case "Metaspace":
		m, err := newMetaspace(raw)
		return m.decode, err
	case "BPEDecoder":
		in := struct{ Suffix string }{"</w>"}
		err := options(raw, &in)
		return func(tokens []string) []string {
			for i, t := range tokens {
				space := " "
				if i == len(tokens)-1 {
					space = ""
				}
				tokens[i] = strings.ReplaceAll(t, in.Suffix, space)
			}
			return tokens
		}, err
	case "Replace":
		r, err := newReplace(raw)
		return eachToken(func(t string) string {
			c := chunk{s: t}
			r.apply(&c)
			return c.s
		}), err
	case "Fuse":
		return func(tokens []string) []string { return []string{strings.Join(tokens, "")} }, options(raw, &struct{}{})
	case "Strip":
		return stripDecoder(raw)
	case "ByteFallback":
		return byteFallback, options(raw, &struct{}{})
	}
	return nil, unknown("decoder", name)
}

func eachToken(do func(string) string) decoder {
	return func(tokens []string) []string {
		for i, t := range tokens {
			tokens[i] = do(t)
		}
		return tokens
	}
}

func sequenceDecoder(raw json.RawMessage) (decoder, error) {
	var in struct{ Decoders []json.RawMessage }
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	var all []decoder
	for _, part := range in.Decoders {
		d, err := decoderOf(part)
		if err != nil {
			return nil, err
		}
		if d != nil {
			all = append(all, d)
		}
	}
	return func(tokens []string) []string {
		for _, d := range all {
			tokens = d(tokens)
		}
		return tokens
	}, nil
}

// cleaned removes spaces before punctuation, as WordPiece's decoder does in each token.
var cleaned = []string{" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m", " do not", " don't",
	" 's", "'s", " 've", "'ve", " 're", "'re"}

func wordPieceDecoder(raw json.RawMessage) (decoder, error) {
	in := struct {
		Prefix  string
		Cleanup bool
	}{"##", true}
	err := options(raw, &in)
	return func(tokens []string) []string {
		for i, t := range tokens {
			if i > 0 {
				piece, inner := strings.CutPrefix(t, in.Prefix)
				if t = piece; !inner {
					t = " " + t
				}
			}
			for k := 0; in.Cleanup && k < len(cleaned); k += 2 {
				t = strings.ReplaceAll(t, cleaned[k], cleaned[k+1])
			}
			tokens[i] = t
		}
		return tokens
	}, err
}

func (m *metaspace) decode(tokens []string) []string {
	for i, t := range tokens {
		space := " "
		if i == 0 && m.scheme != "never" {
			space = ""
		}
		tokens[i] = strings.ReplaceAll(t, m.replacement, space)
	}
	return tokens
}

func stripDecoder(raw json.RawMessage) (decoder, error) {
	var in struct {
		Content     string
		Start, Stop int
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(in.Content) != 1 {
		return nil, fmt.Errorf("decoder Strip: content is %q; expected one character", in.Content)
	}
	return eachToken(func(t string) string {
		for range in.Start {
			var ok bool
			if t, ok = strings.CutPrefix(t, in.Content); !ok {
				break
			}
		}
		for range in.Stop {
			var ok bool
			if t, ok = strings.CutSuffix(t, in.Content); !ok {
				break
			}
		}
		return t
	}), nil
}

// byteFallback makes text of tokens such as <0x61>, which are bytes.
func byteFallback(tokens []string) []string {
	var out []string
	var bytes []byte
	flush := func() {
		if utf8.Valid(bytes) && len(bytes) > 0 {
			out = append(out, string(bytes))
		} else {
			for range bytes {
				out = append(out, "\ufffd")
			}
		}
		bytes = bytes[:0]
	}
	for _, t := range tokens {
		if len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>' {
			if b, err := strconv.ParseUint(t[3:5], 16, 8); err == nil {
				bytes = append(bytes, byte(b))
				continue
			}
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// lossy returns bytes as text, with U+FFFD for each longest wrong sequence of bytes that a right one could
// begin with.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r != utf8.RuneError || size > 1 {
			out.Write(b[:size])
		} else {
			out.WriteRune(r)
			size = wrong(b)
		}
		b = b[size:]
	}
	return out.String()
}

// wrong returns the length of the wrong sequence at the beginning of b.
func wrong(b []byte) int {
	need := 0
	low, high := byte(0x80), byte(0xbf)
	switch c := b[0]; {
	case 0xc2 <= c && c <= 0xdf:
		need = 1
	case 0xe0 <= c && c <= 0xef:
		need = 2
		if c == 0xe0 {
			low = 0xa0
		} else if c == 0xed {
			high = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		need = 3
		if c == 0xf0 {
			low = 0x90
		} else if c == 0xf4 {
			high = 0x8f
		}
	}
	n := 1
	for ; n <= need && n < len(b) && low <= b[n] && b[n] <= high; n++ {
		low, high = 0x80, 0xbf
	}
	return n
}
