package hubfs

import (
	"path/filepath"
	"testing"
)

// FuzzParse holds that a path is refused, or means what it says: it is parsed again from how it is
// written, and what it names stays in its folder of the cache.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"hub:a/b", "hub:a/b@v1.0/x/y.json", "hub:datasets/a/b@refs/pr/1/train.jsonl", "hub:a/b/../c", "hub:a/b@", "hub:a/b@../x", "hub:a/b//c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		a, err := parse(name)
		if err != nil {
			return
		}
		if again, err := parse(a.String()); err != nil || again != a {
			t.Errorf("%q is %+v, which is written %q: %+v, %v", name, a, a, again, err)
		}
		for _, p := range []string{a.folder(), a.revision, "x/" + a.path} {
			if !filepath.IsLocal(p) {
				t.Errorf("%q leads to %q", name, p)
			}
		}
	})
}
