package testkit

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Library compiles a shared library of C in a folder of its own, and returns its path.
func Library(t testing.TB, name, source string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cc := Command(t, "cc", "-x", "c", "-shared", "-fPIC", "-o", out, "-", "-ldl")
	cc.Stdin = strings.NewReader(source)
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// Driver compiles a driver of CUDA that is not real and has GPUs of compute capabilities such as 90. It
// returns the settings of the environment with which a program finds it, and takes TensorFlow's library
// to be built with CUDA, or not.
func Driver(t testing.TB, built bool, capabilities ...int) []string {
	t.Helper()
	var list []string
	for _, c := range capabilities {
		list = append(list, fmt.Sprint(c))
	}
	driver := Library(t, "libcuda.so.1", fmt.Sprintf(`
#include <stddef.h>
#include <stdio.h>
static int ready, capabilities[] = {%s};
int cuInit(unsigned flags) { ready = 1; return 0; }
int cuDriverGetVersion(int* out) { *out = 12040; return 0; }
int cuDeviceGetCount(int* out) { *out = sizeof capabilities / sizeof *capabilities; return ready ? 0 : 3; }
int cuDeviceGet(int* out, int i) { *out = 40 + i; return 0; }
int cuDeviceGetName(char* out, int size, int device) { snprintf(out, size, "GPU-%%d", device - 40); return 0; }
int cuDeviceGetAttribute(int* out, int which, int device) {
  int c = capabilities[device - 40];
  *out = which == 75 ? c / 10 : which == 76 ? c %% 10 : which == 16 ? 100 : 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* out, int device) { *out = (size_t)device << 30; return 0; }
`, strings.Join(list, ", ")))
	is := 0
	if built {
		is = 1
	}
	// The loader takes a function of a library in LD_PRELOAD before TensorFlow's own.
	tensorflow := Library(t, "built.so", fmt.Sprintf("int _ZN10tensorflow19IsGoogleCudaEnabledEv(void) { return %d; }", is))
	return []string{"LD_LIBRARY_PATH=" + filepath.Dir(driver), "LD_PRELOAD=" + tensorflow}
}
