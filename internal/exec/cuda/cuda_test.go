package cuda_test

import (
	"strings"
	"testing"

	_ "github.com/wamuir/graft/tensorflow" // brings the library

	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// The wheel says of itself whether it was built with CUDA.
func TestBuiltIsWhatTheWheelSays(t *testing.T) {
	said := testkit.RunPython(t, `
import importlib.util, pathlib, runpy
where = pathlib.Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
info = runpy.run_path(str(where / "python/platform/build_info.py"))["build_info"]
print(info["is_cuda_build"], ".".join(info.get("cuda_version", "").split(".")[:2]))`)
	built, version, _ := strings.Cut(strings.TrimSuffix(said, "\n"), " ")
	info := cuda.Query()
	if want := built == "True"; info.Built != want {
		t.Errorf("Built is %v, and the wheel says is_cuda_build %s", info.Built, built)
	}
	// The runtime library comes with the wheel, on machines without a GPU too.
	if info.Runtime != version {
		t.Errorf("the runtime library is %q, and the wheel says %q", info.Runtime, version)
	}
	if !info.Built && len(info.GPUs) > 0 {
		t.Errorf("a library without CUDA shows GPUs: %v", info.GPUs)
	}
	if n := cuda.Count(); n != len(info.GPUs) {
		t.Errorf("%d GPUs are counted, and shown %v", n, info.GPUs)
	}
	for _, gpu := range info.GPUs {
		if gpu.Name == "" || gpu.MemoryBytes <= 0 || info.Driver == "" {
			t.Errorf("a GPU without name, memory or driver: %+v", info)
		}
	}
}
