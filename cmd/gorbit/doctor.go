package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/doctor"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/train"
)

func newDoctor(*globals) *cobra.Command {
	var asJSON, measure bool
	cmd := &cobra.Command{
		Use:   "doctor [FOLDER] [flags]",
		Short: "Check whether this machine is fit for training",
		Long: `Checks the processor, memory, limits, folders and environment variables of this
machine, loads TensorFlow and lists its devices, and says what to do about what is not
as it should be. FOLDER is where runs are to be made; without one it is the current
folder.

--measure also measures the peak of the processor, or of the GPU: how fast it multiplies
matrices. It is remembered in the user's cache folder, and trainings say from then on
which share of it they reach (MFU).

It ends with 1 if something keeps a run from working. A note is about a run that works,
but is slower or has less than the machine could give.`,
		Example: `  gorbit doctor
  gorbit doctor /srv/runs
  gorbit doctor --measure
  gorbit doctor --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return noArgs(cmd, args[1:])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&measure, "measure", false, "measure the machine's peak and remember it")
	help.Group(cmd.Flags(), "The checks", "json", "measure")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		folder := "."
		if len(args) == 1 {
			folder = args[0]
		}
		if err := localFolder(folder, "this checks what the machine has"); err != nil {
			return err
		}
		machine := doctor.ThisMachine(runtime.NumCPU())
		findings := append(inspectTensorFlow(machine), doctor.Check(machine, folder)...)
		findings = append(findings, inspectPeaks(cmd.Context(), measure)...)
		findings = append(findings, inspectCluster(os.Getenv("TF_CONFIG"))...)
		var err error
		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), findings)
		} else {
			err = doctor.Write(cmd.OutOrStdout(), findings)
		}
		if n := doctor.Problems(findings); err == nil && n > 0 {
			err = fmt.Errorf("problems found: %d; see the lines that begin with %q", n, doctor.Problem)
		}
		return err
	}
	return cmd
}

// inspectTensorFlow loads TensorFlow and reports its devices and how fast they can be.
func inspectTensorFlow(machine doctor.Machine) []doctor.Finding {
	offer, err := listDevices(devices.Spec{})
	if err != nil {
		return []doctor.Finding{{Check: "TensorFlow", Level: doctor.Problem, Text: oneLine(err.Error()), Do: "set the library up again: make distclean, then make build"}}
	}
	findings := []doctor.Finding{{Check: "TensorFlow", Level: doctor.OK, Text: fmt.Sprintf("gorbit %s, TensorFlow %s", version.String(), offer.TensorFlow)}}
	gpus := 0
	for _, d := range offer.Devices {
		switch d.Type {
		case "CPU":
			f := doctor.Finding{Check: "processor", Level: doctor.OK, Text: fmt.Sprintf("%s, kernels %s", d.Model, d.Kernels)}
			if d.Kernels == "generic" {
				f.Level, f.Do = doctor.Note, "gorbit's kernels are fast with AVX2 or AVX512, which this processor lacks or this virtual machine hides: choose a processor type that shows them"
			}
			findings = append(findings, f)
		case "GPU":
			gpus++
			findings = append(findings, doctor.Finding{Check: "GPU", Level: doctor.OK, Text: fmt.Sprintf("%s, compute capability %s, %.1f GiB", d.Model, d.Capability, float64(d.MemoryLimitBytes)/(1<<30))})
		}
	}
	if !tfprocess.MallocKeeps() {
		findings = append(findings, doctor.Finding{Check: "malloc", Level: doctor.Note, Text: "freed memory goes back to the system, and steps are some 4 % slower", Do: "unset MALLOC_* variables and GLIBC_TUNABLES; a C library other than glibc is as it is"})
	}
	if reason := devices.NoBF16(); reason != "" {
		findings = append(findings, doctor.Finding{Check: "bf16", Level: doctor.Problem, Text: "training in bf16 would end the process: " + reason})
	} else if reason := devices.SlowBF16(); reason != "" {
		findings = append(findings, doctor.Finding{Check: "bf16", Level: doctor.Note, Text: "slower than float32 here: " + reason, Do: "export with float32"})
	} else {
		findings = append(findings, doctor.Finding{Check: "bf16", Level: doctor.OK, Text: "multiplied by native instructions"})
	}
	hasGPU, hasTPU := machine.Accelerators()
	if hasGPU && gpus == 0 {
		f := doctor.Finding{Check: "GPU", Level: doctor.Problem, Text: "this machine has one, and TensorFlow does not offer it"}
		f.Do = "check nvidia-smi and CUDA_VISIBLE_DEVICES: " + offer.missing(devices.Spec{Type: "GPU", Count: 1}).Error()
		findings = append(findings, f)
	}
	if hasTPU {
		findings = append(findings, doctor.Finding{Check: "TPU", Level: doctor.OK, Text: "this machine has one", Do: "to train on it: gorbit train --tpu local"})
	}
	return findings
}

// inspectCluster reports what TF_CONFIG describes.
func inspectCluster(value string) []doctor.Finding {
	if value == "" {
		return nil
	}
	config, err := train.ParseTFConfig(value)
	if err != nil {
		return []doctor.Finding{{Check: "TF_CONFIG", Level: doctor.Problem, Text: err.Error(), Do: "mend it, or unset TF_CONFIG to train on this machine alone"}}
	}
	return []doctor.Finding{{Check: "TF_CONFIG", Level: doctor.OK, Text: fmt.Sprintf("process %d of %d, at %s", config.Task+1, len(config.Workers), config.Workers[config.Task])}}
}
