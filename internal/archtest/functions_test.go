package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is the most lines that a function has without a reason next to it. The lines of tables,
// which are slices, arrays and maps that are written out, do not count.
const maxLines = 80

// longWithoutReason are the functions that have more lines and give no reason today.
var longWithoutReason = []string{}

var reason = regexp.MustCompile(`(?m)^(//)? ?Long: \w`)

// TestLongFunctionsGiveAReason checks that the doc comment of a function of more than 80 lines, or
// a comment in its first lines, has a line that starts with "Long: " and says why it is not split.
func TestLongFunctionsGiveAReason(t *testing.T) {
	violations := map[string]string{}
	err := filepath.WalkDir(root(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root() && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root(), path)
		if err != nil {
			return err
		}
		functions(file, func(decl *ast.FuncDecl) {
			lines := linesOf(files, decl)
			if lines > maxLines && !givesReason(files, file, decl) {
				violations[filepath.ToSlash(filepath.Dir(relative))+" "+functionName(decl)] =
					fmt.Sprintf("%s: a function of %d lines gives no reason for its length", relative, lines)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkExceptions(t, violations, longWithoutReason,
		fmt.Sprintf(`split it to at most %d lines, or add "// Long: REASON" to its doc comment`, maxLines))
}

// linesOf counts a function's lines without those inside of tables.
func linesOf(files *token.FileSet, decl *ast.FuncDecl) int {
	between := func(node ast.Node) int {
		return files.Position(node.End()).Line - files.Position(node.Pos()).Line
	}
	lines := between(decl) + 1
	ast.Inspect(decl.Body, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch literal.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			lines -= between(literal)
			return false
		}
		return true
	})
	return lines
}

// functionName is a function's name, a method's with its receiver's type.
func functionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil || len(decl.Recv.List) == 0 {
		return decl.Name.Name
	}
	receiver := decl.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

// givesReason tells whether a function's doc comment, or a comment in its first three lines, says
// why it is long.
func givesReason(files *token.FileSet, file *ast.File, decl *ast.FuncDecl) bool {
	if decl.Doc != nil && reason.MatchString(decl.Doc.Text()) {
		return true
	}
	first := files.Position(decl.Body.Lbrace).Line
	for _, comment := range file.Comments {
		if comment.Pos() > decl.Body.Lbrace && comment.End() < decl.Body.Rbrace &&
			files.Position(comment.Pos()).Line <= first+3 && reason.MatchString(comment.Text()) {
			return true
		}
	}
	return false
}
