package forecast

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// mebibytes writes an amount of memory.
func mebibytes(n int64) string { return fmt.Sprintf("%s MiB", words.Thousands(n>>20)) }

// Write writes a plan for people. free is the free space of the disk of the run, in bytes; 0 if it is
// not known.
func (p *Plan) Write(out io.Writer, free uint64) error {
	fmt.Fprintf(out, "%s of %s: %s of %d, %s to an epoch of %s\n", p.Architecture, words.Count(p.Parameters, "parameter"),
		words.Count(p.Steps, "step"), p.Asked, words.Thousands(p.StepsPerEpoch), words.Count(p.Examples, "example"))
	if p.Done > 0 {
		fmt.Fprintf(out, "%s of them are done; the rest is planned\n", words.Thousands(p.Done))
	}
	if s := p.Of(p.Asked); s != nil && s.Problem == "" {
		s.write(out, p.Available, free, p.Files)
		p.writeInMemory(out)
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "batch size\texamples/s\ts/step\tpeak memory\ttime\t")
	for _, s := range p.Sizes {
		note := ""
		switch s.BatchSize {
		case p.Best:
			note = "the fastest"
		case p.Asked:
			note = "as given"
		}
		if s.Problem != "" {
			fmt.Fprintf(table, "%d\t%s\n", s.BatchSize, s.Problem)
			continue
		}
		fmt.Fprintf(table, "%d\t%.1f\t%.3f\t%s\t%s\t%s\n", s.BatchSize, s.ExamplesPerSecond, s.SecondsPerStep, mebibytes(s.Memory), runfolder.Duration(s.Seconds), note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if p.Products != nil {
		fmt.Fprintln(out, p.Products)
	}
	_, err := fmt.Fprintf(out, "%s\n", p.advice())
	return err
}

// write writes what the training takes with the batch size of its params.
func (s *Size) write(out io.Writer, available int64, free uint64, files *peak.Disk) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer table.Flush()
	row := func(name, text string, args ...any) {
		fmt.Fprintf(table, "  %s\t%s\n", name, fmt.Sprintf(text, args...))
	}
	row("time", "%s: %s of steps, %s of %s, %s of %s, %s of start", runfolder.Duration(s.Seconds), runfolder.Duration(s.StepsSeconds),
		runfolder.Duration(s.EvalSeconds), words.Count(s.Evaluations, "evaluation"), runfolder.Duration(s.SaveSeconds), words.Count(s.Saves, "checkpoint"), runfolder.Duration(s.StartSeconds))
	tokens := "" // images and rows of numbers have none
	if s.TokensPerSecond > 0 {
		tokens = fmt.Sprintf(", %s tokens/s, %.1f %% padding", words.Thousands(int64(s.TokensPerSecond)), 100*s.Padding)
	}
	row("step", "%.3f s: %.1f examples/s%s", s.SecondsPerStep, s.ExamplesPerSecond, tokens)
	if s.FLOPS > 0 {
		share := ""
		if s.MFU > 0 {
			share = fmt.Sprintf(", %.1f %% of the machine's peak (MFU)", 100*s.MFU)
		}
		row("compute", "%sFLOP/s%s", words.Scaled(s.FLOPS, "", "k", "M", "G", "T", "P"), share)
	}
	row("memory", "%s at most, of %s that it may have", mebibytes(s.Memory), mebibytes(available))
	if s.Offloaded > 0 {
		row("files", "%s, %s in the run's folder%s", mebibytes(s.Offloaded), offloaded[s.Offload], s.pace(files))
	}
	room := ""
	if free > 0 {
		room = fmt.Sprintf(", of %s that are free", words.Bytes(int64(free)))
	}
	row("disk", "%s kept of %s each: %s%s", words.Count(s.Kept, "checkpoint"), words.Bytes(s.Checkpoint), words.Bytes(s.Disk), room)
}

// offloaded says what is on disk, by strategy.offload.
var offloaded = map[string]string{params.OffloadDisk: "the optimizer's slots", params.OffloadAll: "variables, gradients and the optimizer's slots"}

// pace says how long a step takes for files of which memory holds nothing; it follows their size.
func (s *Size) pace(on *peak.Disk) string {
	if on == nil {
		return ""
	}
	reads := 1.0
	if s.Offload == params.OffloadAll { // forward, backward and update; norm and update
		reads = 2
	}
	seconds := float64(s.Offloaded) * (reads/on.Read + 1/on.Write)
	return fmt.Sprintf(", on a disk that reads %sB/s and writes %sB/s: as far as memory cannot hold them, a step takes up to %s for that",
		words.Scaled(on.Read, "", "k", "M", "G"), words.Scaled(on.Write, "", "k", "M", "G"), runfolder.Duration(seconds))
}

// writeInMemory says what files on disk change.
func (p *Plan) writeInMemory(out io.Writer) {
	switch in, on := p.InMemory, p.Of(p.Asked); {
	case in == nil:
	case in.Problem != "":
		fmt.Fprintf(out, "  with %s in memory, not on disk: %s\n", offloaded[on.Offload], in.Problem)
	default:
		fmt.Fprintf(out, "  with %s in memory, not on disk: %s at most, %.3f s a step; on disk it takes %.2f times as long\n",
			offloaded[on.Offload], mebibytes(in.Memory), in.SecondsPerStep, on.SecondsPerStep/in.SecondsPerStep)
	}
}

// onDisk says what slots on disk would change where the training does not fit otherwise; it follows a
// sentence.
func (p *Plan) onDisk() string {
	on := p.OnDisk
	if on == nil {
		return ""
	}
	with := fmt.Sprintf(". With %s on disk (--set strategy.offload=%s)", offloaded[on.Offload], on.Offload)
	if on.Problem != "" {
		return fmt.Sprintf("%s: %s", with, on.Problem)
	}
	return fmt.Sprintf("%s --batch-size %d takes %s at most, %.3f s a step", with, on.BatchSize, mebibytes(on.Memory), on.SecondsPerStep)
}

// worth is how much faster a batch size must be to be worth a change.
const worth = 1.03

// advice returns what to do about the batch size.
func (p *Plan) advice() string {
	best, asked := p.Of(p.Best), p.Of(p.Asked)
	switch {
	case best == nil:
		return "no batch size that was tried can be trained with; try smaller ones with --batch-sizes, or a shorter data.row_length" + p.onDisk()
	case asked.Problem != "":
		return fmt.Sprintf("--batch-size %d cannot be trained with; the largest that can is %d, and the fastest is %d%s", p.Asked, p.Largest, p.Best, p.onDisk())
	case best.ExamplesPerSecond < worth*asked.ExamplesPerSecond:
		return fmt.Sprintf("--batch-size %d is as fast as any; the largest that fits is %d", p.Asked, p.Largest)
	}
	return fmt.Sprintf("--batch-size %d is %.0f %% faster than %d; the largest that fits is %d. Another batch size is another training: its results differ, and the learning rate may have to",
		p.Best, 100*(best.ExamplesPerSecond/asked.ExamplesPerSecond-1), p.Asked, p.Largest)
}
