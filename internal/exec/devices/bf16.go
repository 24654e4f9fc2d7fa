package devices

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// limitVariables are the environment variables that limit oneDNN to an instruction set. If both
// are set, the first one applies.
var limitVariables = [2]string{"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}

// belowBF16 are the values of limitVariables without bfloat16 products. oneDNN ignores unknown
// values.
var belowBF16 = append(slices.Clone(belowAVX512), "avx512_mic", "avx512_mic_4ops", "avx512_core", "avx512_core_vnni")

// belowAVX512 are the values of limitVariables under which oneDNN cannot even emulate bfloat16
// products.
var belowAVX512 = []string{"sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2"}

// NativeBF16 reports whether this process multiplies bfloat16 matrices with native instructions:
// the CPU has them, and the environment does not turn them off.
func NativeBF16() bool { return SlowBF16() == "" }

// SlowBF16 returns why this process emulates bfloat16 products, or "" if it does not.
func SlowBF16() string {
	return slowBF16(runtime.GOARCH, cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16, os.Getenv)
}

func slowBF16(processor string, has bool, getenv func(string) string) string {
	if processor == "arm64" {
		// TensorFlow gives products of bfloat16 to oneDNN on CPUs with AVX-512 alone, and its own code
		// is compiled for any ARM.
		return "TensorFlow uses no instructions of ARM processors for it, not even of those that have them (BF16)"
	}
	if !has {
		return "this CPU has no instructions for it (AVX512_BF16 or AMX_BF16)"
	}
	if v := getenv(switchVariable); oneDNNOff(v) {
		return fmt.Sprintf("%s=%s turns off oneDNN, the only user of this CPU's instructions for it", switchVariable, v)
	}
	name, limit := oneDNNLimit(getenv)
	if !slices.Contains(belowBF16, limit) {
		return ""
	}
	return fmt.Sprintf("%s=%s keeps oneDNN from using this CPU's instructions for it; unset it, or set it to AVX512_CORE_BF16", name, getenv(name))
}

// NoBF16 returns why TensorFlow ends the process at the first product of bfloat16 matrices, or "" if
// it does not. TensorFlow gives these products to oneDNN if the CPU has AVX512F, without regard to
// the limit that oneDNN is told.
func NoBF16() string { return noBF16(cpu.X86.HasAVX512F, os.Getenv) }

func noBF16(avx512 bool, getenv func(string) string) string {
	name, limit := oneDNNLimit(getenv)
	if !avx512 || oneDNNOff(getenv(switchVariable)) || !slices.Contains(belowAVX512, limit) {
		return ""
	}
	return fmt.Sprintf("%s=%s leaves oneDNN no way to compute it; unset it, or set it to AVX512_CORE_BF16", name, getenv(name))
}

// NoFP16 returns why TensorFlow ends the process at the first product of float16 matrices, or "" if it
// does not. TensorFlow gives these products to oneDNN if the CPU has AVX512-FP16, as with NoBF16.
func NoFP16() string {
	return noFP16(slices.Contains(strings.Fields(cpuinfo("flags")), "avx512_fp16"), os.Getenv)
}

func noFP16(has bool, getenv func(string) string) string {
	name, limit := oneDNNLimit(getenv)
	if !has || oneDNNOff(getenv(switchVariable)) || !slices.Contains(belowBF16, limit) && limit != "avx512_core_bf16" {
		return ""
	}
	return fmt.Sprintf("%s=%s leaves oneDNN no way to compute it; unset it, or set it to AVX512_CORE_FP16", name, getenv(name))
}

// switchVariable is the environment variable that turns oneDNN on and off in TensorFlow.
const switchVariable = "TF_ENABLE_ONEDNN_OPTS"

func oneDNNOff(value string) bool { return value == "0" || strings.EqualFold(value, "false") }

// oneDNNLimit returns the variable that limits oneDNN to an instruction set, and its value in lower
// case.
func oneDNNLimit(getenv func(string) string) (name, limit string) {
	name = limitVariables[0]
	if getenv(name) == "" {
		name = limitVariables[1]
	}
	return name, strings.ToLower(getenv(name))
}

// OneDNN reports whether this process lets TensorFlow use oneDNN.
func OneDNN() bool { return !oneDNNOff(os.Getenv(switchVariable)) }
