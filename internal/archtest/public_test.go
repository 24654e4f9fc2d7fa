package archtest

import (
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// internalInPublic are the exported names that show an internal type today.
var internalInPublic = []string{}

// TestPublicNamesShowNoInternalType checks that a program outside of the module can name every type
// that the public packages' exported names take, return or hold.
func TestPublicNamesShowNoInternalType(t *testing.T) {
	violations := map[string]string{}
	for _, pkg := range withTypes(t, "./...") {
		if !isPublic(pkg) {
			continue
		}
		shown := &shownTypes{pkg: pkg.Types, seen: map[types.Type]bool{}}
		scope := pkg.Types.Scope()
		for _, name := range scope.Names() {
			if object := scope.Lookup(name); object.Exported() {
				shown.object(short(pkg.PkgPath)+"."+name, object)
			}
		}
		for _, violation := range shown.violations {
			violations[violation] = "an exported name shows an internal type"
		}
	}
	checkExceptions(t, violations, internalInPublic, "declare the type in a public package")
}

// shownTypes collects the internal types that a package's exported names show.
type shownTypes struct {
	pkg        *types.Package
	seen       map[types.Type]bool
	violations []string
}

// object visits what an exported package-level name shows.
func (s *shownTypes) object(where string, object types.Object) {
	name, ok := object.(*types.TypeName)
	if !ok {
		s.visit(where, object.Type())
		return
	}
	if alias, ok := name.Type().(*types.Alias); ok {
		s.visit(where, alias.Rhs())
		return
	}
	if named, ok := name.Type().(*types.Named); ok {
		s.declaration(where, named)
	}
}

// declaration visits what a type of the package shows: its exported methods, also those of embedded
// fields, and its underlying type.
func (s *shownTypes) declaration(where string, named *types.Named) {
	if s.seen[named] {
		return
	}
	s.seen[named] = true
	s.parameters(where, named.TypeParams())
	s.visit(where, named.Underlying())
	if types.IsInterface(named) {
		return // its methods belong to the underlying type
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	for i := range methods.Len() {
		if method := methods.At(i).Obj(); method.Exported() {
			s.visit(where+"."+method.Name(), method.Type())
		}
	}
}

func (s *shownTypes) parameters(where string, params *types.TypeParamList) {
	for i := range params.Len() {
		s.visit(where, params.At(i).Constraint())
	}
}

// visit visits a type that where shows.
func (s *shownTypes) visit(where string, t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		s.named(where, t.Obj(), t.TypeArgs())
		if t.Obj().Pkg() == s.pkg && !t.Obj().Exported() {
			s.declaration(where, t.Origin()) // its methods and fields are shown, though not its name
		}
	case *types.Alias:
		s.named(where, t.Obj(), t.TypeArgs())
		if t.Obj().Pkg() == s.pkg && !t.Obj().Exported() {
			s.visit(where, t.Rhs())
		}
	case *types.Pointer:
		s.visit(where, t.Elem())
	case *types.Slice:
		s.visit(where, t.Elem())
	case *types.Array:
		s.visit(where, t.Elem())
	case *types.Chan:
		s.visit(where, t.Elem())
	case *types.Map:
		s.visit(where, t.Key())
		s.visit(where, t.Elem())
	case *types.Signature:
		s.parameters(where, t.TypeParams())
		s.visit(where, t.Params())
		s.visit(where, t.Results())
	case *types.Tuple:
		for i := range t.Len() {
			s.visit(where, t.At(i).Type())
		}
	case *types.Struct:
		for i := range t.NumFields() {
			if field := t.Field(i); field.Exported() {
				s.visit(where+"."+field.Name(), field.Type())
			}
		}
	case *types.Interface:
		for i := range t.NumExplicitMethods() {
			if method := t.ExplicitMethod(i); method.Exported() {
				s.visit(where+"."+method.Name(), method.Type())
			}
		}
		for i := range t.NumEmbeddeds() {
			s.visit(where, t.EmbeddedType(i))
		}
	case *types.Union:
		for i := range t.Len() {
			s.visit(where, t.Term(i).Type())
		}
	case *types.Basic, *types.TypeParam, nil:
	default:
		panic(fmt.Sprintf("%s: unexpected %T", where, t))
	}
}

func (s *shownTypes) named(where string, name *types.TypeName, args *types.TypeList) {
	if name.Pkg() != nil && isInternal(name.Pkg().Path()) {
		s.violations = append(s.violations, where+" "+short(name.Pkg().Path())+"."+name.Name())
	}
	for i := range args.Len() {
		s.visit(where, args.At(i))
	}
}

// withoutExample are the public packages that have no example today.
var withoutExample = []string{}

func TestPublicPackagesHaveExamples(t *testing.T) {
	example := regexp.MustCompile(`(?m)^func Example\w*\(\) \{`)
	violations := map[string]string{}
	for _, pkg := range modulePackages(t) {
		if !isPublic(pkg) {
			continue
		}
		dir := filepath.Join(root(), filepath.FromSlash(short(pkg.PkgPath)))
		tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, test := range tests {
			text, err := os.ReadFile(test)
			if err != nil {
				t.Fatal(err)
			}
			found = found || example.Match(text)
		}
		if !found {
			violations[short(pkg.PkgPath)] = "a public package has no Example function"
		}
	}
	checkExceptions(t, violations, withoutExample, "write one in its example_test.go")
}
