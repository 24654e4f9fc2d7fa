package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

// launchToken is the token of a run that launch starts.
type launchToken struct {
	// open means that there is none.
	open bool
	// path is the file that the user names; "" for a new token.
	path string
	// plan is the file of the plan; "" if there is none.
	plan string
}

// newLaunchToken returns the token of launch's flags and of the file of the plan.
func newLaunchToken(open bool, file, plan string) (launchToken, error) {
	if open && file != "" {
		return launchToken{}, usagef("--open and --token-file are given; expected one of them")
	}
	return launchToken{open: open, path: cmp.Or(file, os.Getenv(tokenVariable)), plan: plan}, nil
}

// sockets reports whether the processes of a plan need no token, because Unix sockets connect them.
func (l launchToken) sockets(p launch.Plan) bool {
	return !l.open && l.path == "" && p.OneMachine()
}

// file returns the file in which workers that launch does not start have the token, or "" if there is
// none.
func (l launchToken) file() string {
	switch {
	case l.open:
		return ""
	case l.path != "":
		return l.path
	case l.plan != "":
		return l.plan + ".token"
	}
	return "token"
}

// read returns the token. Where the user starts some of the workers it is that of the file, which is
// made if it does not exist; otherwise a new one. It is "" where there is none.
func (l launchToken) read(c launch.Commands, by launch.Access) (string, error) {
	foreign := func(w launch.Command) bool { return !w.Local }
	if l.open || by.Sockets != "" || len(c.Workers) == 0 {
		return "", nil
	}
	if l.path == "" && !slices.ContainsFunc(c.Workers, foreign) {
		return peertls.NewToken(), nil
	}
	path := l.file()
	if l.path == "" && l.plan == "" {
		return "", usagef("--token-file is missing; expected the file of the token for the workers that you start, or --config with the file of the hosts")
	}
	if l.path == "" {
		if err := makeToken(path); err != nil {
			return "", fmt.Errorf("make the token of the run: %w; name another file with --token-file", err)
		}
	}
	token, err := peertls.ReadToken(path, os.Stdin)
	if err == nil {
		_, err = peertls.FromToken(token)
	}
	if err != nil {
		return "", usagef("%w", err)
	}
	if slices.ContainsFunc(c.Workers, foreign) {
		fmt.Fprintf(os.Stderr, "gorbit: the workers that you start need the token: copy %s to their hosts, for instance with scp -p; who has it can use the workers\n", path)
	}
	return token, nil
}

// makeToken writes a new token to a file that only its user may read, unless the file exists.
func makeToken(path string) error {
	f, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, peertls.NewToken()+"\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return vfs.SyncDir(filepath.Dir(path))
}

// withoutVariable returns an environment without one of its variables.
func withoutVariable(environ []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, name+"=") })
}
