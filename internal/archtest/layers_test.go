package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// layers are the packages from top to bottom. A package imports packages of lower layers only, none
// of its own layer. README.md's table and docs/design/architecture.md show the same order.
var layers = [][]string{
	{"cmd/gorbit", "cmd/gorbit-predict", "examples/...", "text/bench", "internal/serve/bench"},
	{"internal/forecast"},
	{"train", "train/predict/served", "internal/serve", "internal/saved", "internal/study"},
	{"internal/servable/described"},
	{"train/predict", "internal/progress", "internal/launch", "internal/report", "internal/watch", "internal/tracking"},
	{"train/task/classify", "train/task/regression", "train/task/multilabel", "train/task/tokens", "train/task/qa", "train/task/mlm"},
	{"train/task/generic"},
	{"train/task"},
	{"train/evaluation", "internal/runfolder"},
	{"runner", "internal/inspect", "internal/servable", "internal/groups"},
	{"strategy"},
	{"strategy/internal/compose", "internal/cluster/clustertest", "internal/vfs/crashtest"},
	{"internal/cluster", "internal/tpuemulator"},
	{"internal/shardinput", "internal/kernels", "internal/tfserver"},
	{"graphs/build", "internal/flat"},
	{"graphs"},
	{"graphs/safety", "checkpoint", "dataset/packed", "dataset/dense", "dataset/internal/rowtest"},
	{"dataset/internal/columns", "dataset/internal/buckets"},
	{"dataset", "convert", "summary", "tpu", "internal/testkit/records", "internal/servable/layout"},
	{"internal/qa"},
	{"text", "tfrecord", "internal/hub", "internal/table", "internal/peak", "internal/pixels"},
	{"internal/vfs/gcs"},
	{"internal/help"},
	{
		"internal/vfs", "internal/vfs/gcs/gcstest", "internal/chart", "internal/devices", "internal/version", "internal/tune",
		"internal/tfprocess", "internal/altstack", "internal/cuda", "internal/tpuemulator/masterpb",
		"internal/testkit", "internal/archtest", "internal/doctor", "internal/hub/hubtest", "internal/tracking/trackingtest", "internal/peertls",
	},
	{"internal/bounded", "internal/compressed", "internal/ctxio", "internal/format", "internal/suggest"},
	{"internal/fault"},
}

// layerOf is the layer of a package, or -1.
func layerOf(path string) int {
	return slices.IndexFunc(layers, func(layer []string) bool {
		return slices.ContainsFunc(layer, func(name string) bool {
			prefix, all := strings.CutSuffix(name, "...")
			return name == path || all && strings.HasPrefix(path, prefix)
		})
	})
}

func TestImportsPointDown(t *testing.T) {
	for _, pkg := range modulePackages(t) {
		from := layerOf(short(pkg.PkgPath))
		if from < 0 {
			t.Errorf("%s is in no layer; add it to layers_test.go and to docs/design/architecture.md", short(pkg.PkgPath))
			continue
		}
		for path := range pkg.Imports {
			if !ours(path) {
				continue
			}
			if to := layerOf(short(path)); to >= 0 && to <= from {
				t.Errorf("%s (layer %d) imports %s (layer %d); expected a package of a lower layer",
					short(pkg.PkgPath), from, short(path), to)
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
		exactMatch = "="
	)
	for _, tt := range []struct {
		pkg       string
		forbidden []string
	}{
		// The loop is of use without TensorFlow.
		{"runner", []string{graft, galeone}},
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
		{"internal/servable/described", []string{graft, galeone}},
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

// TestArchitectureNamesEveryPackage checks that docs/design/architecture.md says what each package
// is for, but for the main packages of examples and measurements.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(), "docs", "design", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range modulePackages(t) {
		name := short(pkg.PkgPath)
		if pkg.Name == "main" && !strings.HasPrefix(name, "cmd/") {
			continue
		}
		if !strings.Contains(string(text), "["+name+"](../../"+name+")") {
			t.Errorf("docs/design/architecture.md does not name %s; say there what it is for", name)
		}
	}
}

// TestTablesFollowLayers checks that the tables that readers see name the folders in the order of
// the layers, and that each folder that they name exists.
func TestTablesFollowLayers(t *testing.T) {
	link := regexp.MustCompile(`\[([\w/-]+)\]\(((?:\.\./)*[\w/-]+)\)`)
	for _, page := range []string{"README.md", "docs/design/architecture.md"} {
		text, err := os.ReadFile(filepath.Join(root(), page))
		if err != nil {
			t.Error(err)
			continue
		}
		lowest, above, found := 0, "", 0
		for line := range strings.Lines(string(text)) {
			cell, ok := strings.CutPrefix(line, "| [")
			if !ok {
				continue
			}
			cell, _, _ = strings.Cut("["+cell, "|")
			for _, match := range link.FindAllStringSubmatch(cell, -1) {
				folder := match[1]
				if info, err := os.Stat(filepath.Join(root(), folder)); err != nil || !info.IsDir() {
					t.Errorf("%s: the table names %s, which is no folder", page, folder)
				}
				layer := layerOf(folder)
				if layer < 0 {
					continue // bench, docs and tools are not Go
				}
				found++
				if layer < lowest {
					t.Errorf("%s: the table names %s (layer %d) below %s (layer %d)", page, folder, layer, above, lowest)
				}
				lowest, above = layer, folder
			}
		}
		if found < 10 {
			t.Errorf("%s: %d folders found in its table; expected at least 10", page, found)
		}
	}
}
