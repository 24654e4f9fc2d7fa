package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/gorbit-ml/gorbit"

// module's packages without their tests, loaded once: types from the build cache, for those that
// [packagesWithSyntax] names from source.
var load = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedModule | packages.NeedExportFile,
		Dir: root(),
	}, "./...")
})

// root is the folder of the module.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return filepath.Dir(filepath.Dir(dir))
}

// modulePackages are the packages of the module, sorted by path.
func modulePackages(t *testing.T) []*packages.Package {
	t.Helper()
	if testing.Short() {
		t.Skip("reads the sources")
	}
	pkgs, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range pkgs {
		for _, err := range pkg.Errors {
			t.Fatalf("%s: %v", pkg.PkgPath, err)
		}
	}
	return pkgs
}

// withTypes loads the packages that match patterns: their syntax and types from source, the types
// of what they import from the build cache.
func withTypes(t *testing.T, patterns ...string) []*packages.Package {
	t.Helper()
	if testing.Short() {
		t.Skip("reads the sources")
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedImports | packages.NeedTypes | packages.NeedTypesInfo |
			packages.NeedSyntax | packages.NeedExportFile,
		Dir: root(),
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range pkgs {
		for _, err := range pkg.Errors {
			t.Fatalf("%s: %v", pkg.PkgPath, err)
		}
	}
	return pkgs
}

// short is a package's path below the module.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// ours tells whether a package belongs to the module.
func ours(path string) bool { return strings.HasPrefix(path, module+"/") }

// isInternal tells whether a package of the module cannot be imported from outside of it.
func isInternal(path string) bool {
	return ours(path) && slices.Contains(strings.Split(path, "/"), "internal")
}

// isPublic tells whether others are meant to import a package: it is no program and not internal.
func isPublic(pkg *packages.Package) bool {
	return pkg.Name != "main" && !isInternal(pkg.PkgPath) && !strings.HasPrefix(short(pkg.PkgPath), "examples")
}

// checkExceptions fails for each violation that is no known exception, and for each exception that
// is no violation. explain is what to do about a violation.
func checkExceptions(t *testing.T, violations map[string]string, exceptions []string, explain string) {
	t.Helper()
	for _, key := range sortedKeys(violations) {
		if !slices.Contains(exceptions, key) {
			t.Errorf("%s: %s; %s", violations[key], key, explain)
		}
	}
	for _, key := range exceptions {
		if _, ok := violations[key]; !ok {
			t.Errorf("%q is listed as an exception and is none any more; remove it from the list", key)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// functions calls f for each function and method that a file declares.
func functions(file *ast.File, f func(*ast.FuncDecl)) {
	for _, decl := range file.Decls {
		if decl, ok := decl.(*ast.FuncDecl); ok && decl.Body != nil {
			f(decl)
		}
	}
}
