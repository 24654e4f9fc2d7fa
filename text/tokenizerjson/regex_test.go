package tokenizerjson

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Regular expressions match where those of the library do; see testdata/gen_patterns.py.
func TestRegexLibraryAgrees(t *testing.T) {
	data, err := os.ReadFile("testdata/patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Pattern string
		Texts   [][2]json.RawMessage
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		r, err := newRegex(one.Pattern)
		if err != nil {
			t.Fatal(err)
		}
		finders := []finder{r.finder(), remembering(r.finder())}
		if scan := scanners[one.Pattern]; scan != nil {
			finders = append(finders, find(scan))
		}
		for _, raw := range one.Texts {
			var s string
			var want [][2]int
			if err := json.Unmarshal(raw[0], &s); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw[1], &want); err != nil {
				t.Fatal(err)
			}
			for _, f := range finders {
				got := [][2]int{}
				for _, at := range matches(f, s, new(memo)) {
					got = append(got, [2]int{utf8.RuneCountInString(s[:at[0]]), utf8.RuneCountInString(s[:at[1]])})
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s in %q: got %v, want %v", one.Pattern, s, got, want)
				}
			}
		}
	}
}

// What is not known of a regular expression is refused, by its name.
func TestRegexRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		`\p{Han}+`: `\\p{Han`, `^a`: `"^"`, `a$`: `"$"`, `\h+`: `\\h`, `\Bx`: `\\B`, `[\b]`: `\\b`, `a+?`: "a repetition of a repetition",
		`(?<=a+)b`: "a look behind for what may be of several lengths", `(?<!a|)b`: "a look behind", `(?<!a(?=b))b`: "a look behind", `(?<=a{17})b`: "a look behind", `(?<=a)?b`: "a group that is repeated",
		`(?:a+)*b`: "a group that is repeated", `(?:a|b)++`: "a group that is repeated", `\b`: "matches of nothing", `(?>a)`: `"(?>"`, `(a|b)+`: "a group that is repeated", `(?i:[a-c])`: "more than ASCII letters", `(?i:[^a])`: "a set that is excluded", `(?i:\s)`: "more than ASCII letters",
		`(?i:st)`: "letters without case", `(?i:é)`: "more than ASCII letters", `a{2}+`: `"}+"`, `a{,2}`: `"{,2"`, `a{3,2}`: `"{3,2"`, `a**`: "a repetition",
		`a*`: "matches of nothing", `a|`: "matches of nothing", `(?=a)`: "matches of nothing", `(a`: "a ( too many", `a)`: "a ) too many",
		`[a`: "a set that is not closed", `[a&&b]`: "&&", `[[:alpha:]]`: "[:", `[]a]`: "a set of nothing", `[b-a]`: "a range", `[\s-a]`: "a range",
		strings.Repeat("a?(b|c)", 33): "more than 64 groups and repetitions", `a{1001}`: "a repetition of more than 1000 times", `(?:a{2,1001}b)`: "a repetition of more than 1000", strings.Repeat("(", 30): "more than 20 groups", strings.Repeat("[", 30): "more than 20 sets", `\`: `"\\`, `\p`: `\\p`,
	} {
		_, err := newRegex(pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", pattern, err, want)
		}
	}
}

// matches returns where the matches of a text begin and end.
func matches(f finder, s string, m *memo) (all [][2]int) {
	for from, to := f(s, 0, m); from >= 0; from, to = f(s, to, m) {
		all = append(all, [2]int{from, to})
	}
	return all
}

// remembering makes a finder keep places from the first step on.
func remembering(f finder) finder {
	return func(s string, at int, m *memo) (int, int) {
		m.begin(s)
		m.keep()
		return f(s, at, m)
	}
}

// forgetful is a memo that never keeps places.
func forgetful(text string) *memo { return &memo{text: text, left: math.MaxInt} }

// hostile are patterns, and the parts of texts, that going back alone takes the square of the length for, or more.
var hostile = []struct{ pattern, again, end string }{
	{`\d{1,3}(?=(?:\d{3})*\b)`, "1", "_"},
	{`\d{1,3}(?=(?:\d{3})*\b)`, "1", " "},
	{`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\p{N}{3}`, "٣", "1"},
	{`a(?=a*+b)|aa`, "a", "b"},
	{`a(?!a*\d)`, "a", "1"},
	{`a(?!a*\d)`, "a", "b"},
	{`a(?=(?:a+))`, "a", ""},
	{`\s+x|\s*\n`, " ", "y"},
	{`\s++x`, " ", "y"},
	{`(?:ab)+c|(?:ab)++c`, "ab", ""},
	{`a*a*a*a*a*b`, "a", "c"},
	{`(?:a+|a{1,9}a*)(?:a|(?:aa)+)?(?:a|a+)b`, "a", "c"},
	{`a{2,50}a{1,9}b`, "a", "c"},
	{strings.Repeat(`(?:a|a|a)?`, 12) + "b", "a", "c"},
	{strings.Repeat(`a?+(?:|a|)`, 12) + "b", "a", "c"},
}

// The time of a hostile pattern is the length of the text times a number.
func TestRegexLinear(t *testing.T) {
	for _, h := range hostile {
		r, err := newRegex(h.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{100, 1000, 20000} {
			s := strings.Repeat(h.again, n) + h.end
			var m memo
			matches(r.finder(), s, &m)
			if took, most := stepsPerByte*len(s)-m.left, 200*len(s); took > most {
				t.Errorf("%s: %d times %q took %d steps, expected at most %d", h.pattern, n, h.again, took, most)
			}
		}
	}
}

// Matches are within the text, in order, of something, and the same whether places are kept or not.
func FuzzRegex(f *testing.F) {
	f.Add(`(?i:'s|k)?[^\r\n\p{L}a-z[\]]]?+\s{1,2}|a(?!b)|(?:x|)y`, "it's \xff\r\n axy")
	for _, h := range hostile {
		f.Add(h.pattern, strings.Repeat(h.again, 7)+h.end+h.again)
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		r, err := newRegex(pattern)
		if err != nil {
			return
		}
		at := 0
		kept := matches(remembering(r.finder()), s, new(memo))
		for _, m := range kept {
			if m[0] < at || m[1] <= m[0] || m[1] > len(s) {
				t.Fatalf("%s in %q: from %d to %d after %d", pattern, s, m[0], m[1], at)
			}
			at = m[1]
		}
		if some := matches(r.finder(), s, new(memo)); !reflect.DeepEqual(some, kept) {
			t.Fatalf("%s in %q: %v, and %v with all places kept", pattern, s, some, kept)
		}
		if r.number(0, false, false) > 4 || len(s) > 20 {
			return // without a memo it may take long
		}
		if plain := matches(r.finder(), s, forgetful(s)); !reflect.DeepEqual(plain, kept) {
			t.Fatalf("%s in %q: %v, and %v with places kept", pattern, s, plain, kept)
		}
	})
}

// Random patterns of few letters match the same whether places are kept or not.
func TestRegexKeepsPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	var some func(deep int) string
	some = func(deep int) (out string) {
		for range 1 + r.IntN(3) {
			switch r.IntN(6 + deep) {
			case 0, 1, 2:
				out += pick("a", "b", "[ab]", ".", `\b`) + pick("", "", "?", "*", "+", "?+", "*+", "++", "{2}", "{1,2}", "{2,}")
			case 3:
				out += pick("(?:ab)", "(?:a.)", "(?:aa)") + pick("?", "*", "+", "++", "{1,2}")
			case 4:
				out += pick("(?<=a)", "(?<!ab|b)")
			default:
				if deep > 0 {
					out += pick("(?:", "(?:", "(?=", "(?!") + some(deep-1) + "|" + some(deep-1) + ")"
				}
			}
		}
		return out
	}
	compared := 0
	for range 20000 {
		pattern := some(2) + pick("", "|"+some(1))
		x, err := newRegex(pattern)
		if err != nil {
			continue
		}
		s := ""
		for range r.IntN(12) {
			s += pick("a", "a", "b", "ab", "é")
		}
		plain, kept := matches(x.finder(), s, forgetful(s)), matches(remembering(x.finder()), s, new(memo))
		if !reflect.DeepEqual(plain, kept) {
			t.Fatalf("%s in %q: %v, and %v with places kept", pattern, s, plain, kept)
		}
		compared++
	}
	if compared < 2000 {
		t.Errorf("%d patterns were compared, expected more", compared)
	}
}

func BenchmarkRegex(b *testing.B) {
	gpt4o := `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	english := strings.Repeat("It's the 2nd of May: 1,234 people (of York) don't sleep, they've no time.  \n", 300)
	for _, one := range []struct{ name, pattern, text string }{
		{"english", gpt4o, english},
		{"thousands in english", `\d{1,3}(?=(?:\d{3})*\b)`, english},
		{"spaces", gpt4o, strings.Repeat(" ", 20000) + "a"},
		{"digits and _", `\d{1,3}(?=(?:\d{3})*\b)`, strings.Repeat("1", 20000) + "_"},
		{"digits", `\d{1,3}(?=(?:\d{3})*\b)`, strings.Repeat("1", 20000)},
		{"spaces and x", `\s+x`, strings.Repeat(" ", 20000)},
	} {
		b.Run(one.name, func(b *testing.B) {
			r, err := newRegex(one.pattern)
			if err != nil {
				b.Fatal(err)
			}
			find := r.finder()
			b.SetBytes(int64(len(one.text)))
			for b.Loop() {
				matches(find, one.text, new(memo))
			}
		})
	}
}
