package devices

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// limitVariables are the environment variables by which oneDNN keeps to an instruction set. The
// first counts where both are set.
var limitVariables = [2]string{"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}

// belowBF16 are the instruction sets of limitVariables without products of bfloat16. oneDNN takes
// any other text for no limit.
var belowBF16 = []string{"sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2", "avx512_mic", "avx512_mic_4ops", "avx512_core", "avx512_core_vnni"}

// NativeBF16 reports whether this process multiplies matrices of bfloat16 by instructions of its
// CPU: the CPU has them, and the environment leaves them to TensorFlow.
func NativeBF16() bool { return SlowBF16() == "" }

// SlowBF16 says why this process emulates products of bfloat16; "" where it does not.
func SlowBF16() string { return slowBF16(cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16, os.Getenv) }

func slowBF16(has bool, getenv func(string) string) string {
	if !has {
		return "this CPU has no instructions for it (AVX512_BF16 or AMX_BF16)"
	}
	const switchVariable = "TF_ENABLE_ONEDNN_OPTS"
	if v := getenv(switchVariable); v == "0" || strings.EqualFold(v, "false") {
		return fmt.Sprintf("%s=%s turns off oneDNN, which alone uses this CPU's instructions for it", switchVariable, v)
	}
	name := limitVariables[0]
	if getenv(name) == "" {
		name = limitVariables[1]
	}
	limit := getenv(name)
	if !slices.Contains(belowBF16, strings.ToLower(limit)) {
		return ""
	}
	return fmt.Sprintf("%s=%s keeps oneDNN from this CPU's instructions for it: unset it, or set it to AVX512_CORE_BF16", name, limit)
}
