package devices

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// limitVariables are the environment variables that limit oneDNN to an instruction set. If both
// are set, the first one applies.
var limitVariables = [2]string{"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}

// belowBF16 are the values of limitVariables without bfloat16 products. oneDNN ignores unknown
// values.
var belowBF16 = []string{"sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2", "avx512_mic", "avx512_mic_4ops", "avx512_core", "avx512_core_vnni"}

// NativeBF16 reports whether this process multiplies bfloat16 matrices with native instructions:
// the CPU has them, and the environment does not turn them off.
func NativeBF16() bool { return SlowBF16() == "" }

// SlowBF16 returns why this process emulates bfloat16 products, or "" if it does not.
func SlowBF16() string { return slowBF16(cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16, os.Getenv) }

func slowBF16(has bool, getenv func(string) string) string {
	if !has {
		return "this CPU has no instructions for it (AVX512_BF16 or AMX_BF16)"
	}
	const switchVariable = "TF_ENABLE_ONEDNN_OPTS"
	if v := getenv(switchVariable); v == "0" || strings.EqualFold(v, "false") {
		return fmt.Sprintf("%s=%s turns off oneDNN, the only user of this CPU's instructions for it", switchVariable, v)
	}
	name := limitVariables[0]
	if getenv(name) == "" {
		name = limitVariables[1]
	}
	limit := getenv(name)
	if !slices.Contains(belowBF16, strings.ToLower(limit)) {
		return ""
	}
	return fmt.Sprintf("%s=%s keeps oneDNN from using this CPU's instructions for it; unset it, or set it to AVX512_CORE_BF16", name, limit)
}
