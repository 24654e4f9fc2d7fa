package cuda_test

import (
	"encoding/json"
	"fmt"
	"os"
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
	Count  int
	Error  string
	Info   cuda.Info
	Names  []string
	Memory []int64
}

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	var s said
	n, err := cuda.Count()
	if s.Count = n; err != nil {
		s.Error = err.Error()
	}
	s.Info = cuda.Query()
	for _, g := range s.Info.GPUs {
		s.Names, s.Memory = append(s.Names, g.Name+" "+g.Capability), append(s.Memory, g.MemoryBytes>>30)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestDriver counts the GPUs of a driver that is not real, with a TensorFlow that says that it was built
// with CUDA, or that it was not. The program has not called TensorFlow before.
func TestDriver(t *testing.T) {
	own := "GORBIT_CUDA_CAPABILITY=12.0"
	for _, c := range []struct {
		gpus        []int
		environment []string
		want        said
		says        string
	}{
		{gpus: []int{90, 75}, want: said{Count: 2, Names: []string{"GPU-0 9.0", "GPU-1 7.5"}, Memory: []int64{40, 41}}},
		{gpus: []int{35, 90}, want: said{Count: 1, Names: []string{"GPU-1 9.0"}, Memory: []int64{41}}},
		{gpus: []int{90, 120}, want: said{Names: []string{"GPU-0 9.0", "GPU-1 12.0"}, Memory: []int64{40, 41}}, says: "GPU GPU-1 has compute capability 12.0"},
		{gpus: []int{120}, environment: []string{own}, want: said{Count: 1, Names: []string{"GPU-0 12.0"}, Memory: []int64{40}}},
		{gpus: []int{100}, environment: []string{"GORBIT_CUDA_CAPABILITY=9.0"}, want: said{Names: []string{"GPU-0 10.0"}, Memory: []int64{40}}, says: "compute_100"},
		{gpus: []int{90}, environment: []string{"TF_MIN_GPU_MULTIPROCESSOR_COUNT=101"}},
		{},
	} {
		cmd := testkit.Command(t, os.Args[0])
		driver := testkit.Driver(t, c.gpus != nil, append(c.gpus, 90)[:max(1, len(c.gpus))]...)
		cmd.Env = slices.Concat(os.Environ(), []string{child + "=1"}, driver, c.environment)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var got said
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got.Count != c.want.Count || !slices.Equal(got.Names, c.want.Names) || !slices.Equal(got.Memory, c.want.Memory) {
			t.Errorf("%v %v: got %+v, want %+v", c.gpus, c.environment, got, c.want)
		}
		if (got.Error == "") != (c.says == "") || !strings.Contains(got.Error, c.says) {
			t.Errorf("%v %v: error %q, want %q", c.gpus, c.environment, got.Error, c.says)
		}
		if got.Info.Built != (c.gpus != nil) || (got.Info.Driver == "12.4") != (c.gpus != nil) || len(got.Info.Left)+len(got.Names) != len(c.gpus) {
			t.Errorf("%v %v: %+v", c.gpus, c.environment, got.Info)
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
	if n, err := cuda.Count(); err != nil || n != len(info.GPUs) {
		t.Errorf("%d GPUs are counted, error %v, and shown %v", n, err, info.GPUs)
	}
	for _, gpu := range info.GPUs {
		if gpu.Name == "" || gpu.MemoryBytes <= 0 || info.Driver == "" {
			t.Errorf("a GPU without name, memory or driver: %+v", info)
		}
	}
}
