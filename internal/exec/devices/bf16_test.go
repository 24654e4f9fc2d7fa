package devices

import (
	"strings"
	"testing"
)

// TestSlowBF16 checks that the environment is read as oneDNN reads it: case does not matter, the
// newer variable has priority, and unknown values are ignored.
func TestSlowBF16(t *testing.T) {
	for _, variables := range []string{"", "TF_ENABLE_ONEDNN_OPTS=1", "TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2"} {
		const want = "TensorFlow uses no instructions of ARM processors for it"
		if got := slowBF16("arm64", false, environment(variables)); !strings.HasPrefix(got, want) {
			t.Errorf("on ARM, with %q: %q, want %q", variables, got, want)
		}
	}
	for _, test := range []struct {
		has         bool
		environment string
		want        string // part of the reason; "" for native
	}{
		{true, "", ""},
		{false, "", "this CPU has no instructions for it (AVX512_BF16 or AMX_BF16)"},
		{false, "ONEDNN_MAX_CPU_ISA=ALL", "no instructions"},
		{true, "ONEDNN_MAX_CPU_ISA=ALL", ""},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", ""},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_AMX", ""},
		{true, "ONEDNN_MAX_CPU_ISA=nonsense", ""},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE", "ONEDNN_MAX_CPU_ISA=AVX512_CORE keeps oneDNN from using this CPU's instructions"},
		{true, "ONEDNN_MAX_CPU_ISA=avx2", "ONEDNN_MAX_CPU_ISA=avx2 keeps"},
		{true, "DNNL_MAX_CPU_ISA=AVX512_CORE_VNNI", "DNNL_MAX_CPU_ISA=AVX512_CORE_VNNI keeps"},
		{true, "ONEDNN_MAX_CPU_ISA=ALL DNNL_MAX_CPU_ISA=AVX2", ""},
		{true, "ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=ALL", "ONEDNN_MAX_CPU_ISA=AVX2 keeps"},
		{true, "TF_ENABLE_ONEDNN_OPTS=0", "TF_ENABLE_ONEDNN_OPTS=0 turns off oneDNN"},
		{true, "TF_ENABLE_ONEDNN_OPTS=1", ""},
	} {
		got := slowBF16("amd64", test.has, environment(test.environment))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v %s: %q, want %q", test.has, test.environment, got, test.want)
		}
	}
}

// TestNoBF16 checks which limits of oneDNN end a process at its first product of bfloat16.
func TestNoBF16(t *testing.T) {
	for _, test := range []struct {
		avx512      bool
		environment string
		want        string
	}{
		{true, "", ""},
		{true, "ONEDNN_MAX_CPU_ISA=SSE41", "ONEDNN_MAX_CPU_ISA=SSE41 leaves oneDNN no way"},
		{true, "ONEDNN_MAX_CPU_ISA=avx2", "ONEDNN_MAX_CPU_ISA=avx2 leaves"},
		{true, "DNNL_MAX_CPU_ISA=AVX2_VNNI_2", "DNNL_MAX_CPU_ISA=AVX2_VNNI_2 leaves"},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_MIC", ""},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE", ""},
		{true, "ONEDNN_MAX_CPU_ISA=nonsense", ""},
		{true, "TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2", ""},
		{false, "ONEDNN_MAX_CPU_ISA=AVX2", ""},
	} {
		got := noBF16(test.avx512, environment(test.environment))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v %s: %q, want %q", test.avx512, test.environment, got, test.want)
		}
	}
}

// TestNoFP16 checks which limits of oneDNN end a process at its first product of float16.
func TestNoFP16(t *testing.T) {
	for _, test := range []struct {
		fp16        bool
		environment string
		want        string
	}{
		{true, "", ""},
		{true, "ONEDNN_MAX_CPU_ISA=avx2", "ONEDNN_MAX_CPU_ISA=avx2 leaves oneDNN no way"},
		{true, "DNNL_MAX_CPU_ISA=AVX512_CORE", "DNNL_MAX_CPU_ISA=AVX512_CORE leaves"},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", "set it to AVX512_CORE_FP16"},
		{true, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16", ""},
		{true, "TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2", ""},
		{false, "ONEDNN_MAX_CPU_ISA=AVX2", ""},
	} {
		got := noFP16(test.fp16, environment(test.environment))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v %s: %q, want %q", test.fp16, test.environment, got, test.want)
		}
	}
}

// environment looks up variables in a list of NAME=VALUE.
func environment(list string) func(string) string {
	set := make(map[string]string)
	for _, v := range strings.Fields(list) {
		name, value, _ := strings.Cut(v, "=")
		set[name] = value
	}
	return func(name string) string { return set[name] }
}
