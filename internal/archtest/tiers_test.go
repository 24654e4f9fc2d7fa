package archtest

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// tiers are the folders of the module from bottom to top. A package imports packages of its own tier
// and of lower ones. A folder stands for what is below it, but for folders that are named themselves.
var tiers = [][]string{
	{"internal/base"},
	{"text", "tfrecord", "internal/data", "dataset", "convert"},
	{"graphs", "checkpoint"},
	{"internal/exec", "tpu", "strategy"},
	{"runner", "summary", "generate"},
	{"internal/run", "train"},
	{"internal/app"},
	{"cmd", "examples"},
}

// notShipped are folders of code that only tests and measurements use.
var notShipped = []string{"internal/archtest", "internal/testkit", "text/bench", "text/tokenizerjson/compare", "internal/app/serve/bench"}

// tierOf is the tier of a package, or -1.
func tierOf(path string) int {
	return slices.IndexFunc(tiers, func(folders []string) bool { return slices.ContainsFunc(folders, within(path)) })
}

// within returns whether a package is in a folder or below it.
func within(path string) func(folder string) bool {
	return func(folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
}

func TestImportsPointDown(t *testing.T) {
	for _, pkg := range modulePackages(t) {
		from := short(pkg.PkgPath)
		if slices.ContainsFunc(notShipped, within(from)) {
			continue
		}
		if tierOf(from) < 0 {
			t.Errorf("%s is in no tier; move it to the folder of one, or add its folder to tiers", from)
		}
		for path := range pkg.Imports {
			if to := short(path); ours(path) && tierOf(to) > tierOf(from) {
				t.Errorf("%s imports %s, which is in a higher tier", from, to)
			}
		}
	}
}

// TestForbiddenDependencies checks what packages must not depend on, however indirectly.
func TestForbiddenDependencies(t *testing.T) {
	const (
		graft      = "github.com/wamuir/graft/"           // TensorFlow for training, and its protos
		graftC     = "github.com/wamuir/graft/tensorflow" // the binding itself, which links libtensorflow
		galeone    = "github.com/galeone/tensorflow/"     // TensorFlow as tfgo links it
		tfprocess  = module + "/internal/exec/tfprocess"
		vfstest    = module + "/internal/base/vfs/vfstest"
		exactMatch = "="
	)
	for _, tt := range []struct {
		pkg       string
		forbidden []string
	}{
		// The loop is of use without TensorFlow.
		{"runner", []string{graft, galeone}},
		// So is the choice of tokens.
		{"generate", []string{graft, galeone}},
		// Data is read and made without TensorFlow.
		{"dataset/packed", []string{graft, galeone}},
		{"dataset/dense", []string{graft, galeone}},
		{"convert", []string{graft, galeone}},
		{"text", []string{graft, galeone}},
		{"tfrecord", []string{graft, galeone}},
		// These need TensorFlow's messages, not its library.
		{"graphs", []string{exactMatch + graftC, galeone}},
		{"summary", []string{exactMatch + graftC, galeone}},
		// Two bindings in one process would register TensorFlow's messages twice.
		{"cmd/gorbit-predict", []string{graft}},
		{"train/predict/served", []string{graft}},
		{"train/predict", []string{graft, galeone}},
		{"cmd/gorbit", []string{galeone}},
		{"internal/run/described", []string{graft, galeone}},
		// A program decides about its process: libraries do not replace functions of the C library.
		{"train", []string{tfprocess}},
		{"train/predict/served", []string{tfprocess}},
		{"internal/app/serve", []string{tfprocess}},
		// File systems that fail are for tests.
		{"cmd/gorbit", []string{vfstest}},
	} {
		t.Run(tt.pkg, func(t *testing.T) {
			i := slices.IndexFunc(modulePackages(t), func(pkg *packages.Package) bool {
				return short(pkg.PkgPath) == tt.pkg
			})
			if i < 0 {
				t.Fatalf("there is no package %s", tt.pkg)
			}
			packages.Visit(modulePackages(t)[i:i+1], func(pkg *packages.Package) bool {
				for _, forbidden := range tt.forbidden {
					exact, isExact := strings.CutPrefix(forbidden, exactMatch)
					if isExact && pkg.PkgPath == exact ||
						!isExact && strings.HasPrefix(pkg.PkgPath, forbidden) && short(pkg.PkgPath) != tt.pkg {
						t.Errorf("%s depends on %s", tt.pkg, pkg.PkgPath)
					}
				}
				return true
			}, nil)
		})
	}
}
