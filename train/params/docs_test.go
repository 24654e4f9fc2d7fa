package params

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// documented is a row of the table of params in docs/guide/run.md.
type documented struct{ value, meaning string }

// documentedParams returns the rows of the table by param.
func documentedParams(t *testing.T) map[string]documented {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "guide", "run.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(doc), "| param | default | meaning |\n| --- | --- | --- |\n")
	if !ok {
		t.Fatal("docs/guide/run.md has no table of params")
	}
	link := regexp.MustCompile(` ?\(\[[^\]]*\]\([^)]*\)\)`)
	rows := make(map[string]documented)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			break
		}
		name := strings.Trim(cells[1], " `")
		if _, twice := rows[name]; twice {
			t.Errorf("docs/guide/run.md has %s twice", name)
		}
		rows[name] = documented{strings.TrimSpace(cells[2]), strings.ReplaceAll(link.ReplaceAllString(strings.TrimSpace(cells[3]), ""), "`", "")}
	}
	return rows
}

// commentedParams returns what the comments of params.go say of each param.
func commentedParams(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "params.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	structs := make(map[string]*ast.StructType)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	out := make(map[string]string)
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			name := strings.TrimPrefix(path+"."+field.Tag.Get("yaml"), ".")
			if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[ByClass]() {
				walk(field.Type, name)
				continue
			}
			said := strings.Join(strings.Fields(structs[typ.Name()].Fields.List[i].Doc.Text()), " ")
			meaning, ok := strings.CutPrefix(said, field.Name+": ")
			if !ok {
				t.Errorf("%s: the comment is %q, expected %q and what the param means", name, said, field.Name+": ")
			}
			out[name] = strings.TrimSuffix(meaning, ".")
		}
	}
	walk(reflect.TypeFor[Params](), "")
	return out
}

// sameValue reports whether a default as documented is the one of Defaults.
func sameValue(documented string, value any) bool {
	switch v := value.(type) {
	case nil:
		return documented == "" // a map without members
	case string:
		return strconv.Quote(documented) == v
	case float64:
		got, err := strconv.ParseFloat(documented, 64)
		return err == nil && got == v
	case time.Duration:
		got, err := time.ParseDuration(documented)
		return err == nil && got == v
	}
	return documented == fmt.Sprint(value)
}

// TestParamsAreDocumented holds the table of docs/guide/run.md against the params that exist,
// their defaults, and what their comments say of them.
func TestParamsAreDocumented(t *testing.T) {
	rows, defaults := documentedParams(t), Defaults().Flat()
	comments := commentedParams(t)
	for name, meaning := range comments {
		row, ok := rows[name]
		if !ok {
			t.Errorf("docs/guide/run.md does not have %s", name)
			continue
		}
		if row.meaning != meaning {
			t.Errorf("%s: docs/guide/run.md says %q, params.go says %q", name, row.meaning, meaning)
		}
		if !sameValue(row.value, defaults[name]) {
			t.Errorf("%s: docs/guide/run.md has the default %q, it is %v", name, row.value, defaults[name])
		}
	}
	for name := range rows {
		if _, ok := comments[name]; !ok {
			t.Errorf("docs/guide/run.md has %s, which is no param", name)
		}
	}
}

// What 0 stands for is said in words: these are the numbers behind them.
func TestDocumentedZeros(t *testing.T) {
	rows := documentedParams(t)
	for name, want := range map[string]struct {
		is   int64
		says int64
		text string
	}{
		"data.readers":                {dataset.DefaultReaders, 2, "0 is two"},
		"data.buffer":                 {dataset.DefaultBuffer, 65536, "0 is 65,536"},
		"data.row_length":             {packed.DefaultRowLength, 128, "0: 128 or"},
		"checkpoint.keep_every_hours": {mostHours, 1_000_000, "1,000,000 the most"},
	} {
		if want.is != want.says || !strings.Contains(rows[name].meaning, want.text) {
			t.Errorf("%s is %d, and docs/guide/run.md says %q; expected %q", name, want.is, rows[name].meaning, want.text)
		}
	}
}
