package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// writing are the functions of package os that make or change what stays on a disk. Temporary files
// have functions of their own.
var writing = []string{"Create", "WriteFile", "OpenFile", "Rename", "Link", "Mkdir", "MkdirAll", "Truncate"}

// pastVFS are the files that call them all the same. docs/design/crash.md lists them, too.
var pastVFS = map[string]string{
	"internal/app/study/driver.go":   "a child process writes to the log",
	"cmd/gorbit/raterange.go":        "a child process writes to the log",
	"internal/app/forecast/probe.go": "a temporary folder, and /proc",
}

// TestWritesGoThroughVFS keeps what docs/design/crash.md says: what is written past package vfs is not
// seen by the tests that crash a program at every operation.
func TestWritesGoThroughVFS(t *testing.T) {
	found := map[string]bool{}
	for _, pkg := range modulePackages(t) {
		if path := short(pkg.PkgPath); slices.ContainsFunc(append([]string{"internal/base/vfs"}, notShipped...), within(path)) {
			continue
		}
		for _, name := range pkg.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if name, err = filepath.Rel(root(), name); err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || !slices.Contains(writing, s.Sel.Name) {
					return true
				}
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "os" {
					if found[name] = true; pastVFS[name] == "" {
						t.Errorf("%s calls os.%s; call that of package vfs, or say why not in pastVFS and in docs/design/crash.md", name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	for name := range pastVFS {
		if !found[name] {
			t.Errorf("%s is in pastVFS and writes nothing; remove it there and in docs/design/crash.md", name)
		}
	}
}
