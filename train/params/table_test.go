package params

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

var update = flag.Bool("update", false, "write the table of docs/guide/run.md")

// TestTableHasAllFields wants a row for each field of Params and a field for each row, and defaults that
// are valid.
func TestTableHasAllFields(t *testing.T) {
	var fields, rows []string
	new(Params).fields(func(name string, _ reflect.Value) { fields = append(fields, name) })
	defaults := Defaults()
	values := defaults.byName()
	for _, p := range Table() {
		rows = append(rows, p.Name)
		if p.Meaning == "" || strings.HasSuffix(p.Meaning, ".") {
			t.Errorf("%s: the meaning is %q; expected one without a period", p.Name, p.Meaning)
		}
		if err := p.valid(values[p.Name]); err != nil {
			t.Errorf("default: %v", err)
		}
	}
	slices.Sort(fields)
	slices.Sort(rows)
	if !slices.Equal(fields, rows) {
		t.Errorf("the fields are\n%s, and the rows\n%s", fields, rows)
	}
}

// inDocs returns a default as the guide writes it.
func inDocs(value any) string {
	switch v := value.(type) {
	case nil:
		return "" // a map without members
	case string:
		text, _ := strconv.Unquote(v)
		return text
	case float64:
		return strings.Replace(strconv.FormatFloat(v, 'g', -1, 64), "e-0", "e-", 1)
	case time.Duration:
		if text := v.String(); strings.HasSuffix(text, "m0s") {
			return strings.TrimSuffix(text, "0s")
		}
	}
	return fmt.Sprint(value)
}

// TestGuideHasTheTable wants docs/guide/run.md to have the table of params; go test -run GuideHasTheTable
// ./train/params -update writes it.
func TestGuideHasTheTable(t *testing.T) {
	const head = "| param | default | meaning |\n| --- | --- | --- |\n"
	defaults := Defaults().Flat()
	var want strings.Builder
	for _, p := range Table() {
		cell := inDocs(defaults[p.Name])
		if cell != "" {
			cell += " "
		}
		see := ""
		if p.See != "" {
			see = " (" + p.See + ")"
		}
		fmt.Fprintf(&want, "| `%s` | %s| %s%s |\n", p.Name, cell, p.Meaning, see)
	}
	path := filepath.Join(testkit.Root(), "docs", "guide", "run.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), head)
	table, after, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		t.Fatal("docs/guide/run.md has no table of params")
	}
	if table+"\n" == want.String() {
		return
	}
	if !*update {
		t.Fatal("the table of params in docs/guide/run.md is not that of train/params; write it with go test -run GuideHasTheTable ./train/params -update")
	}
	if err := os.WriteFile(path, []byte(before+head+want.String()+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What 0 stands for is said in words: these are the numbers they stand for.
func TestZerosInWords(t *testing.T) {
	for name, want := range map[string]struct {
		is, says int64
		text     string
	}{
		"data.readers":                {dataset.DefaultReaders, 2, "0 is two"},
		"data.buffer":                 {dataset.DefaultBuffer, 65536, "0 is 65,536"},
		"data.row_length":             {packed.DefaultRowLength, 128, "0: 128 or"},
		"checkpoint.keep_every_hours": {mostHours, 1_000_000, "1,000,000 the most"},
	} {
		if p, _ := Lookup(name); want.is != want.says || !strings.Contains(p.Meaning, want.text) {
			t.Errorf("%s is %d, and its meaning is %q; expected %q", name, want.is, p.Meaning, want.text)
		}
	}
}

// TestLookup finds params by their names and those of their members.
func TestLookup(t *testing.T) {
	for name, want := range map[string]string{
		"seed": "seed", "data.features.image": "data.features", "data.sampling.0": "data.sampling", "optimizer.groups[1].match": "optimizer.groups",
		"optimizer.hyperparameters.beta_1": "optimizer.hyperparameters", "init_value": "", "data": "", "eval.steps.x": "",
	} {
		if p, ok := Lookup(name); p.Name != want || ok != (want != "") {
			t.Errorf("%s is %q; expected %q", name, p.Name, want)
		}
	}
}

// TestChoices wants values that a param does not have to be refused with what was most likely meant.
func TestChoices(t *testing.T) {
	for _, row := range Table() {
		if row.Choices == nil {
			continue
		}
		p := Defaults()
		meant := row.Choices[len(row.Choices)-1]
		if err := p.Set(row.Name + "=\"" + meant + "s\""); err != nil {
			t.Fatal(err)
		}
		hint := ""
		if len(meant) > 3 {
			hint = "; did you mean " + meant + "?"
		}
		err := p.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), "params: "+row.Name+" is \""+meant+"s\"; expected ") || !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("%s: error is %v; expected %q", row.Name, err, hint)
		}
	}
}
