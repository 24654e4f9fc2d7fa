// Command gorbit-setup tells the go command where TensorFlow's headers and library are, so that programs
// that import gorbit's packages build anywhere on this machine:
//
//	go run github.com/gorbit-ml/gorbit/cmd/gorbit-setup@latest
//
// It takes them from TensorFlow's wheel, which pip fetches once, or from an environment of Python that
// has it, and writes CGO_CFLAGS and CGO_LDFLAGS to Go's own settings (go env -w). It is pure Go: it
// builds before there is a C compiler or a TensorFlow, and says what is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

const usage = `gorbit-setup finds TensorFlow for Go programs that import gorbit's packages.

It fetches TensorFlow's wheel with pip, keeps its library and headers in the user's cache folder,
and writes CGO_CFLAGS and CGO_LDFLAGS to Go's settings (go env -w), beside what is there. A second
run fetches nothing.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(shown.Writer(os.Stderr), "gorbit-setup: %v\n", err)
	}
	os.Exit(fault.ExitCode(err))
}

// options are the flags.
type options struct {
	python, wheel, folder string
	print, undo           bool
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	flags := flag.NewFlagSet("gorbit-setup", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.python, "python", "", "an interpreter of Python whose TensorFlow is taken where it is")
	flags.StringVar(&o.wheel, "wheel", "", "a file of TensorFlow's wheel to take, in the place of fetching one")
	flags.StringVar(&o.folder, "folder", "", "where to put what builds need (the user's cache folder)")
	flags.BoolVar(&o.print, "print", false, "print the settings for a shell, and leave those of Go as they are")
	flags.BoolVar(&o.undo, "undo", false, "take what gorbit-setup wrote out of Go's settings")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		_, err = io.WriteString(stdout, usage)
		flags.PrintDefaults()
		return err
	case err != nil:
		return fault.Usagef("%w (see gorbit-setup --help)", err)
	case flags.NArg() > 0:
		return fault.Usagef("unexpected argument %q; expected flags only (see gorbit-setup --help)", flags.Arg(0))
	case o.python != "" && o.wheel != "":
		return fault.Usagef("--python and --wheel were both given; expected one of them")
	case o.undo && (o.print || o.python != "" || o.wheel != "" || o.folder != ""):
		return fault.Usagef("--undo takes no other flag")
	}
	return o.run(ctx, stdout)
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	settings, err := goSettings(ctx)
	if err != nil {
		return err
	}
	if _, ok := machines[settings.GOARCH]; settings.GOOS != "linux" || !ok {
		return fmt.Errorf("programs are built for %s on %s; expected Linux on amd64 or arm64, for which there is a TensorFlow", settings.GOOS, settings.GOARCH)
	}
	if !o.print {
		if err := settings.writable(); err != nil {
			return err
		}
	}
	if o.undo {
		if err := settings.remove(); err != nil {
			return err
		}
		if err := settings.write(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(stdout, "Go's settings have nothing of gorbit-setup any more; its files stay, to be removed by hand")
		return err
	}
	if err := settings.checkCompiler(ctx); err != nil {
		return err
	}
	progress := stdout
	if o.print {
		progress = os.Stderr // a shell reads the other
	}
	tensorflow, err := o.provide(ctx, settings, progress)
	if err != nil {
		return err
	}
	if err := settings.add(tensorflow); err != nil {
		return err
	}
	release, err := tensorflow.try(ctx, settings)
	if err != nil {
		return err
	}
	if o.print {
		_, err := io.WriteString(stdout, settings.shell())
		return err
	}
	if err := settings.write(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "TensorFlow %s of %s works\ngo env now says\n  CGO_CFLAGS=%s\n  CGO_LDFLAGS=%s\nthat is all: go build finds TensorFlow\n",
		release, tensorflow.libraries, settings.CGO_CFLAGS, settings.CGO_LDFLAGS)
	return err
}

// provide returns the folder that builds need, which it makes unless it is there.
func (o *options) provide(ctx context.Context, build *settings, stdout io.Writer) (f *folder, err error) {
	root, err := o.root()
	if err != nil {
		return nil, err
	}
	if err := vfs.MkdirAll(root, 0o777); err != nil {
		return nil, fmt.Errorf("%w; choose another folder with --folder", err)
	}
	unlock, other, err := vfs.Lock(filepath.Join(root, ".lock"))
	if err != nil {
		return nil, err
	}
	if other != nil {
		return nil, fmt.Errorf("%s is being set up by %v; wait until it is done", root, other)
	}
	defer unlock()
	s, err := o.open(ctx, root, build.GOARCH, stdout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return provide(ctx, s, root, build)
}

// root returns the folder of the folders of all sources.
func (o *options) root() (string, error) {
	if o.folder != "" {
		return filepath.Abs(o.folder)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fault.Usagef("there is no folder for caches: %w; choose a folder with --folder", err)
	}
	return filepath.Join(cache, "gorbit", "tensorflow"), nil
}

// open opens the source of TensorFlow. The wheel of a package index is fetched unless its folder is there.
func (o *options) open(ctx context.Context, root, goarch string, stdout io.Writer) (*source, error) {
	switch {
	case o.python != "":
		return openInstalled(ctx, o.python)
	case o.wheel != "":
		return openWheel(o.wheel)
	}
	w := wheels[goarch]
	made := &source{release: w.release, id: w.sha256, close: func() error { return nil }}
	if (&folder{path: filepath.Join(root, folderName(made.release, made.id, goarch))}).whole() {
		return made, nil
	}
	to := filepath.Join(root, ".fetched")
	if err := vfs.RemoveAll(to); err != nil {
		return nil, err
	}
	file, err := w.fetch(ctx, to, stdout)
	if err != nil {
		return nil, errors.Join(err, vfs.RemoveAll(to))
	}
	s, err := openWheel(file)
	if err != nil {
		return nil, errors.Join(err, vfs.RemoveAll(to))
	}
	closeWheel := s.close
	s.close = func() error { return errors.Join(closeWheel(), vfs.RemoveAll(to)) }
	return s, nil
}
