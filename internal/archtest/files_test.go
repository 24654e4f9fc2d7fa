package archtest

import (
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upward are the uses that close a circle between files today: the file on the left should not use
// what the file on the right declares.
var upward = map[string][]string{
	"train":                     {},
	"strategy":                  {},
	"strategy/internal/compose": {},
}

// TestFilesCallOneWay checks that the files of a package can be put in an order in which each uses
// only what later ones declare: functions, methods, types, variables and constants. Fields, and a
// method's own receiver, do not count, so that a type's methods may be spread over files. With -v
// it prints the order.
func TestFilesCallOneWay(t *testing.T) {
	for _, name := range sortedKeys(upward) {
		t.Run(name, func(t *testing.T) {
			pkg := withTypes(t, "./"+name)[0]
			uses := fileUses{}
			for i, file := range pkg.Syntax {
				uses.add(pkg.Types, pkg.TypesInfo, file, filepath.Base(pkg.CompiledGoFiles[i]), func(o types.Object) string {
					return filepath.Base(pkg.Fset.Position(o.Pos()).Filename)
				})
			}
			for _, exception := range upward[name] {
				from, to, ok := strings.Cut(exception, " -> ")
				if !ok || uses[from][to] == "" {
					t.Errorf("%q is listed as an exception and is none any more; remove it from the list", exception)
				}
				delete(uses[from], to)
			}
			for _, exception := range upward[name] {
				if from, to, _ := strings.Cut(exception, " -> "); !uses.reaches(to, from) {
					t.Errorf("%q is listed as an exception and closes no circle; remove it from the list", exception)
				}
			}
			order, circles := uses.order()
			for _, circle := range circles {
				t.Errorf("files of %s use each other in a circle:\n%s", name, uses.describe(circle))
			}
			t.Logf("the files of %s, each using only files below it:\n\t%s", name, strings.Join(order, "\n\t"))
		})
	}
}

// fileUses holds, by file and by the file that it uses, one of the names that are used.
type fileUses map[string]map[string]string

// add adds the uses of one file. fileOf is the file that declares a name.
func (u fileUses) add(pkg *types.Package, info *types.Info, file *ast.File, name string, fileOf func(types.Object) string) {
	u[name] = map[string]string{}
	receivers := map[ast.Node]bool{}
	functions(file, func(decl *ast.FuncDecl) {
		if decl.Recv != nil {
			receivers[decl.Recv] = true
		}
	})
	ast.Inspect(file, func(node ast.Node) bool {
		if receivers[node] {
			return false
		}
		ident, ok := node.(*ast.Ident)
		if !ok {
			return true
		}
		object := info.Uses[ident]
		if object == nil || object.Pkg() != pkg || !declaredByPackage(object) {
			return true
		}
		if declaring := fileOf(object); declaring != name && u[name][declaring] == "" {
			u[name][declaring] = ident.Name
		}
		return true
	})
}

// declaredByPackage tells whether an object is a package's function, type, variable or constant or
// a method of one of its types, and not a field or something local.
func declaredByPackage(object types.Object) bool {
	if object.Parent() == object.Pkg().Scope() {
		return true
	}
	function, ok := object.(*types.Func)
	return ok && function.Signature().Recv() != nil
}

// reaches tells whether file from uses file to, also through others.
func (u fileUses) reaches(from, to string) bool {
	seen := map[string]bool{}
	var visit func(string) bool
	visit = func(file string) bool {
		if file == to {
			return true
		}
		if seen[file] {
			return false
		}
		seen[file] = true
		return slices.ContainsFunc(sortedKeys(u[file]), visit)
	}
	return visit(from)
}

// order returns the files with each before those that it uses, and the sets of files that use each
// other in a circle.
func (u fileUses) order() (order []string, circles [][]string) {
	left := sortedKeys(u)
	for len(left) > 0 {
		// The first file that no file that is left uses, but for those in a circle with it.
		i := slices.IndexFunc(left, func(file string) bool {
			return !slices.ContainsFunc(left, func(other string) bool {
				return other != file && u.reaches(other, file) && !u.reaches(file, other)
			})
		})
		circle := []string{}
		for _, other := range left {
			if u.reaches(other, left[i]) && u.reaches(left[i], other) {
				circle = append(circle, other)
			}
		}
		if len(circle) > 1 {
			circles = append(circles, circle)
		}
		order = append(order, circle...)
		left = slices.DeleteFunc(left, func(file string) bool { return slices.Contains(circle, file) })
	}
	return order, circles
}

// describe lists the uses between the files of a circle.
func (u fileUses) describe(circle []string) string {
	var b strings.Builder
	for _, from := range circle {
		for _, to := range circle {
			if name := u[from][to]; name != "" {
				fmt.Fprintf(&b, "\t%s -> %s (%s)\n", from, to, name)
			}
		}
	}
	return b.String()
}
