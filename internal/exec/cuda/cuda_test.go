package cuda_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// child in the environment of the test's own program lets it print what the package says.
const child = "GORBIT_CUDA_TEST_CHILD"

// said is what the package says in a child. Count comes first: nothing has loaded TensorFlow's library.
type said struct {
	Count int
	Info  cuda.Info
	GPUs  []cuda.GPU
}

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	s := said{Count: cuda.Count(), Info: cuda.Query()}
	s.GPUs = s.Info.GPUs
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestDriver counts the GPUs of a driver that is not real, with a TensorFlow that says that it was built
// with CUDA, or that it was not. The program has not called TensorFlow before.
func TestDriver(t *testing.T) {
	driver := testkit.Library(t, "libcuda.so.1", `
#include <stddef.h>
#include <string.h>
static int ready;
int cuInit(unsigned flags) { ready = 1; return 0; }
int cuDriverGetVersion(int* out) { *out = 12040; return 0; }
int cuDeviceGetCount(int* out) { *out = 2; return ready ? 0 : 3; }
int cuDeviceGet(int* out, int i) { *out = 40 + i; return 0; }
int cuDeviceGetName(char* out, int size, int device) { strncpy(out, device == 40 ? "first" : "second", size); return 0; }
int cuDeviceGetAttribute(int* out, int which, int device) { *out = which == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t* out, int device) { *out = (size_t)device << 30; return 0; }
`)
	gpus := []cuda.GPU{{Name: "first", Capability: "9.0", MemoryBytes: 40 << 30}, {Name: "second", Capability: "9.0", MemoryBytes: 41 << 30}}
	for _, c := range []struct {
		built string // what TensorFlow says
		want  []cuda.GPU
	}{{"1", gpus}, {"0", nil}} {
		// The loader takes a function of a library in LD_PRELOAD before TensorFlow's own.
		tensorflow := testkit.Library(t, "built.so", "int _ZN10tensorflow19IsGoogleCudaEnabledEv(void) { return "+c.built+"; }")
		cmd := testkit.Command(t, os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1", "LD_PRELOAD="+tensorflow, "LD_LIBRARY_PATH="+filepath.Dir(driver))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var got said
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n := len(c.want); got.Count != n || !slices.Equal(got.GPUs, c.want) || got.Info.Built != (n > 0) || (got.Info.Driver == "12.4") != (n > 0) {
			t.Errorf("built with CUDA: %s: got %+v, want %v", c.built, got, c.want)
		}
	}
}

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
