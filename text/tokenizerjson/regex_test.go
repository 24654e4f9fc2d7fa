package tokenizerjson

import (
	"encoding/json"
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
		finders := []finder{r.finder()}
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
				for from, to := f(s, 0); from >= 0; from, to = f(s, to) {
					got = append(got, [2]int{utf8.RuneCountInString(s[:from]), utf8.RuneCountInString(s[:to])})
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
		`(?:a+)*b`: "a group that is repeated", `(?:a|b)++`: "a group that is repeated", `(?:ab)*(?:a)*a*a*c`: "more than 3 long repetitions", `\b`: "matches of nothing", `(?>a)`: `"(?>"`, `(a|b)+`: "a group that is repeated", `(?i:[a-c])`: "more than ASCII letters", `(?i:[^a])`: "a set that is excluded", `(?i:\s)`: "more than ASCII letters",
		`(?i:st)`: "letters without case", `(?i:é)`: "more than ASCII letters", `a{2}+`: `"}+"`, `a{,2}`: `"{,2"`, `a{3,2}`: `"{3,2"`, `a**`: "a repetition",
		`a*`: "matches of nothing", `a|`: "matches of nothing", `(?=a)`: "matches of nothing", `(a`: "a ( too many", `a)`: "a ) too many",
		`[a`: "a set that is not closed", `[a&&b]`: "&&", `[[:alpha:]]`: "[:", `[]a]`: "a set of nothing", `[b-a]`: "a range", `[\s-a]`: "a range",
		`a?a?a?a?a?a?a?a?a?b`: "more than 8 choices", strings.Repeat("(?:a|b|a)", 5) + "c": "more than 8 choices",
		`a*a*a*a*b`: "more than 3 long repetitions", `(a*a*)(?:a+|a{1,99}a*)b`: "more than 3 long repetitions", strings.Repeat("(", 30): "more than 20 groups", strings.Repeat("[", 30): "more than 20 sets", `\`: `"\\`, `\p`: `\\p`,
	} {
		_, err := newRegex(pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", pattern, err, want)
		}
	}
}

// Matches are within the text, in order, and of something.
func FuzzRegex(f *testing.F) {
	f.Add(`(?i:'s|k)?[^\r\n\p{L}a-z[\]]]?+\s{1,2}|a(?!b)|(?:x|)y`, "it's \xff\r\n axy")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 40 || len(s) > 40 {
			return // some patterns take long, as in any reader that goes back
		}
		r, err := newRegex(pattern)
		if err != nil {
			return
		}
		for from, to := r.finder()(s, 0); from >= 0; {
			at := to
			if from, to = r.finder()(s, at); from >= 0 && (from < at || to <= from || to > len(s)) {
				t.Fatalf("%s in %q: from %d to %d after %d", pattern, s, from, to, at)
			}
		}
	})
}
