package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/receipt"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// verifyFlags are the flags of gorbit verify.
type verifyFlags struct {
	run, key, data   string
	write, overwrite bool
	replay           int64
}

func newVerify(g *globals) *cobra.Command {
	var v verifyFlags
	cmd := &cobra.Command{
		Use:   "verify RUN [flags]",
		Short: "Check a run and its data against a receipt, or write one",
		Long: `With --write, writes receipt.json into a run's folder: the checksums of all files of the run, of
its graph and of the data by shard, a chain of the lines of its metrics, and the programs and
machines that trained it. Otherwise checks the run against its receipt and names every file that
differs; of the metrics also the first line.

With --replay N, makes steps of the run again, at most N from each of up to three kept checkpoints
on, among them the first and the last that have a next one, and compares all numbers of the next
checkpoint, bit for bit, and the lines of metrics.jsonl. That needs no receipt, and the kind of
machine on which the run was trained. The run is not changed.

A receipt is an in-toto statement. With --key it is signed by a key of Ed25519, as a DSSE
envelope; a check with --key fails unless the key, or its public half, signed it. Without a
signature a receipt finds damage, and no forgery: who can change the run can change it, too.`,
		Example: `  gorbit verify runs/mrpc --write --key key.pem
  gorbit verify runs/mrpc --key public.pem
  gorbit verify runs/mrpc --replay 100`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("verify is given %q; expected the folder of one run", args)
			}
			v.run = args[0]
			return localFolder(v.run, "copy it to this machine first")
		},
	}
	f := cmd.Flags()
	f.BoolVar(&v.write, "write", false, "write a receipt")
	f.BoolVar(&v.overwrite, "overwrite", false, "with --write: replace the receipt that the run has")
	f.StringVar(&v.key, "key", "", "PEM `FILE` of a key of Ed25519: with --write a private one, which signs; otherwise a private or public one, which must have signed")
	f.StringVar(&v.data, "data", "", "`FOLDER` of the data, if they were moved")
	f.Int64Var(&v.replay, "replay", 0, "make at most `N` steps again from kept checkpoints on, and compare all bits")
	help.Group(f, "What to do", "write", "overwrite", "replay", "key", "data")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := v.validate(f.Changed("replay")); err != nil {
			return err
		}
		if v.replay > 0 {
			if !f.Changed("log-level") {
				g.logLevel = slog.LevelError.String() // the training has warned before
			}
			return v.replaySteps(cmd, g)
		}
		var private ed25519.PrivateKey
		var public ed25519.PublicKey
		if v.key != "" {
			var err error
			if private, public, err = receipt.ReadKey(v.key); err != nil {
				return err
			}
		}
		if v.write {
			return v.writeReceipt(cmd.Context(), cmd.OutOrStdout(), private)
		}
		return v.check(cmd.Context(), cmd.OutOrStdout(), public)
	}
	return cmd
}

// validate returns an error for flags that do not go together, and for what is no run.
func (v verifyFlags) validate(replay bool) error {
	switch {
	case v.overwrite && !v.write:
		return usagef("--overwrite is given without --write; a check changes nothing")
	case v.write && v.data != "":
		return usagef("--data is given with --write; a receipt is of the data that the run's params name")
	case replay && v.replay < 1:
		return usagef("--replay is %d; expected 1 or more", v.replay)
	case replay && (v.write || v.key != ""):
		return usagef("--replay is given with --write or --key; it makes steps again, and needs no receipt")
	case !runfolder.IsRun(v.run):
		return usagef("%s is not the folder of a run; expected one that gorbit train wrote", v.run)
	}
	return nil
}

// replaySteps makes steps of a run again and says what differs.
func (v verifyFlags) replaySteps(cmd *cobra.Command, g *globals) error {
	p, err := runfolder.ReadParams(v.run)
	if err != nil {
		return err
	}
	if err := setProcess(p); err != nil {
		return err
	}
	env, err := g.env(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	different := 0
	err = receipt.Replay{Steps: v.replay, Data: v.data}.Run(cmd.Context(), v.run, env, func(r receipt.Replayed) error {
		if r.Difference != "" {
			different++
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), r)
		return err
	})
	if err == nil && different > 0 {
		err = fault.Damagedf("%s of run %s differ when they are made again", words.Count(int64(different), "interval"), v.run)
	}
	return err
}

// writeReceipt writes the receipt of a run in which nobody trains.
func (v verifyFlags) writeReceipt(ctx context.Context, out io.Writer, key ed25519.PrivateKey) error {
	path := filepath.Join(v.run, receipt.Name)
	if _, err := vfs.Stat(path); err == nil && !v.overwrite {
		return usagef("%s already exists; add --overwrite to replace it", path)
	}
	if v.key != "" && key == nil {
		return usagef("%s is a public key; expected a private one, to sign with", v.key)
	}
	unlock, err := checkpoint.Lock(v.run)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := receipt.Make(ctx, v.run)
	if err != nil {
		return err
	}
	content, err := s.Seal(key)
	if err != nil {
		return err
	}
	if err := vfs.ReplaceFile(path, content); err != nil {
		return err
	}
	signed := "not signed"
	if key != nil {
		signed = "signed"
	}
	_, err = fmt.Fprintf(out, "wrote %s, %s: %s of the run, %s of data\n", path, signed,
		words.Count(int64(len(s.Subject)), "file"), words.Count(int64(len(s.Predicate.Data)), "file"))
	return err
}

// withReceipt trains, and writes a receipt of the complete run if that is wanted.
func withReceipt(cmd *cobra.Command, run string, wanted bool, train func() error) error {
	if !wanted {
		return train()
	}
	if err := checkReceipt(run); err != nil {
		return err
	}
	if err := train(); err != nil {
		return err
	}
	return verifyFlags{run: run, overwrite: true}.writeReceipt(cmd.Context(), cmd.OutOrStdout(), nil)
}

// checkReceipt refuses a training that is to end with a receipt which it could not write.
func checkReceipt(run string) error {
	if err := localFolder(run, "copy it to this machine afterwards, and write the receipt there"); err != nil {
		return err
	}
	if os.Getenv("TF_CONFIG") != "" {
		return usagef("--receipt is given with TF_CONFIG, and several processes train; write the receipt afterwards: gorbit verify %s --write", run)
	}
	path := filepath.Join(run, receipt.Name)
	content, err := vfs.ReadFile(path)
	if err != nil { // there is none, or the end will say so
		return nil
	}
	if _, signed, err := receipt.Open(content, nil); err == nil && signed {
		return usagef("%s is signed, and --receipt would write one that is not; leave out --receipt, and write one afterwards: gorbit verify %s --write --overwrite --key PRIVATE.pem", path, run)
	}
	return nil
}

// check compares a run with its receipt.
func (v verifyFlags) check(ctx context.Context, out io.Writer, key ed25519.PublicKey) error {
	path := filepath.Join(v.run, receipt.Name)
	content, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%s has no receipt; write one with gorbit verify %[1]s --write", v.run)
	}
	if err != nil {
		return err
	}
	s, signed, err := receipt.Open(content, key)
	if err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	checked, err := s.Check(ctx, v.run, v.data)
	if err != nil {
		return err
	}
	if signed && key == nil {
		checked.Notes = append(checked.Notes, "the receipt is signed, and the signature was not checked; name the key with --key")
	}
	for _, line := range append(checked.Changed, checked.Notes...) {
		fmt.Fprintln(out, line)
	}
	if n := len(checked.Changed); n > 0 {
		return fault.Damagedf("%s of run %s differ from the receipt, and %d do not", words.Count(int64(n), "file"), v.run, checked.Files)
	}
	_, err = fmt.Fprintf(out, "%s are as the receipt says\n", words.Count(int64(checked.Files), "file"))
	return err
}
