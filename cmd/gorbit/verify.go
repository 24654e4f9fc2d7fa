package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
}

func newVerify(_ *globals) *cobra.Command {
	var v verifyFlags
	cmd := &cobra.Command{
		Use:   "verify RUN [flags]",
		Short: "Check a run and its data against a receipt, or write one",
		Long: `With --write, writes receipt.json into a run's folder: the checksums of all files of the run, of
its graph and of the data by shard, a chain of the lines of its metrics, and the programs and
machines that trained it. Otherwise checks the run against its receipt and names every file that
differs; of the metrics also the first line.

A receipt is an in-toto statement. With --key it is signed by a key of Ed25519, as a DSSE
envelope; a check with --key fails unless the key, or its public half, signed it. Without a
signature a receipt finds damage, and no forgery: who can change the run can change it, too.`,
		Example: `  gorbit verify runs/mrpc --write --key key.pem
  gorbit verify runs/mrpc --key public.pem`,
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
	help.Group(f, "What to do", "write", "overwrite", "key", "data")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if v.overwrite && !v.write {
			return usagef("--overwrite is given without --write; a check changes nothing")
		}
		if v.write && v.data != "" {
			return usagef("--data is given with --write; a receipt is of the data that the run's params name")
		}
		if !runfolder.IsRun(v.run) {
			return usagef("%s is not the folder of a run; expected one that gorbit train wrote", v.run)
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
