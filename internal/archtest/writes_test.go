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

// reading are the functions of package os that read files.
var reading = []string{"Open", "ReadFile"}

// readPastVFS are the files that call them all the same.
var readPastVFS = map[string]string{
	"internal/app/servable/part.go":      "the lock of a folder",
	"internal/exec/cluster/folder.go":    "a lock",
	"internal/exec/devices/memory.go":    "/proc",
	"internal/exec/devices/processor.go": "/proc",
	"internal/exec/peak/busy.go":         "/proc",
	"internal/exec/reclaim/files.go":     "/proc",
	"internal/base/stream/context.go":    "it is for what is no regular file",
}

// TestFilesGoThroughVFS keeps what docs/design/crash.md says: what is written past package vfs is not
// seen by the tests that crash a program at every operation, and what is read past it is not tried again
// after an error that passes, and may be a pipe that blocks.
func TestFilesGoThroughVFS(t *testing.T) {
	callsOf(t, writing, pastVFS)
	callsOf(t, reading, readPastVFS)
}

// callsOf finds the calls of functions of package os, all of which must be in files that are named.
func callsOf(t *testing.T, functions []string, past map[string]string) {
	t.Helper()
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
				if !ok || !slices.Contains(functions, s.Sel.Name) {
					return true
				}
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "os" {
					if found[name] = true; past[name] == "" {
						t.Errorf("%s calls os.%s; call that of package vfs, or say why not in this test and in docs/design/crash.md", name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	for name := range past {
		if !found[name] {
			t.Errorf("%s calls none of these functions; remove it from the list and in docs/design/crash.md", name)
		}
	}
}
