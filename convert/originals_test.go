package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOriginals(t *testing.T) {
	for name, test := range map[string]struct {
		cfg     Config
		content string
		want    string
	}{
		"csv":       {Config{TextColumn: "text", LabelColumn: "label"}, "label,text\n1,\"A  Film,\nGood\"\n0,b\n", "[{A  Film,\nGood } {b }]"},
		"pairs":     {Config{TextColumn: "a", PairColumn: "b", LabelColumn: "label"}, "a,b,label\nA,B,1\nc,D,0\n", "[{A B} {c D}]"},
		"no header": {Config{TextColumn: "2", LabelColumn: "1", NoHeader: true}, "1,Good\n0,Bad\n", "[{Good } {Bad }]"},
		"a bad row": {Config{TextColumn: "text", LabelColumn: "label", SkipBadRows: true}, "label,text\n1,a,b,c\n0,B\n1,C\n", "[{ } {B } {C }]"},
		"numbers":   {Config{Task: string(Regression), TextColumn: "text", LabelColumn: "label"}, "label,text\n1.5,Bad\n", "[{Bad }]"},
	} {
		dir := write(t, map[string]string{"from/x.csv": test.content})
		cfg := in(dir, test.cfg)
		cfg.Inputs = []Input{{Train, filepath.Join(dir, "from", "x.csv")}}
		m := mustRun(t, cfg)
		got, err := m.Originals(t.Context(), Train, []string{dir, filepath.Join(dir, "from")})
		if err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%s: %q, %v; expected %q", name, fmt.Sprint(got), err, test.want)
		}
		if _, err := m.Originals(t.Context(), Train, []string{dir}); err == nil || err.Error() != "x.csv was not found" {
			t.Errorf("%s: in another folder: %v", name, err)
		}
		path := filepath.Join(dir, "from", "x.csv")
		for _, content := range []string{strings.ToUpper(test.content), test.content + "x"} {
			if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Originals(t.Context(), Train, []string{filepath.Join(dir, "from")}); err == nil {
				t.Errorf("%s: a file that has changed is taken", name)
			}
		}
	}
	if _, err := (&Manifest{Task: string(Tokens)}).Originals(t.Context(), Train, nil); err == nil {
		t.Error("words have whole texts")
	}
}
