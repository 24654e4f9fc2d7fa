package devices

import (
	"strings"
	"testing"
)

// TestSlowBF16 checks that the environment is read as oneDNN reads it: case does not matter, the
// newer variable has priority, and unknown values are ignored.
func TestSlowBF16(t *testing.T) {
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
		set := make(map[string]string)
		for _, v := range strings.Fields(test.environment) {
			name, value, _ := strings.Cut(v, "=")
			set[name] = value
		}
		got := slowBF16(test.has, func(name string) string { return set[name] })
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v %s: %q, want %q", test.has, test.environment, got, test.want)
		}
	}
}
