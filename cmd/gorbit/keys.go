package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// tokenVariable is the environment variable of --token-file.
const tokenVariable = "GORBIT_TOKEN_FILE"

// accessFlags are the flags that say how chief and workers reach each other.
var accessFlags = []string{"sockets", "token-file", "tls-cert", "tls-key", "tls-ca"}

// access is how chief and workers reach each other.
type access struct {
	keys    *peertls.Keys // nil without keys
	sockets string        // the folder of their Unix sockets; "" for ports
}

// addAccess adds the flags of keys and sockets. The function that it returns reads them; standard
// input may hold the token.
func addAccess(f *pflag.FlagSet) func(stdin io.Reader) (access, error) {
	var o peertls.Options
	var sockets string
	f.StringVar(&sockets, "sockets", "", "`FOLDER` of Unix sockets by which chief and workers of one machine reach each other, without ports or keys; HOST:PORT are then names. No other user may enter it")
	f.StringVar(&o.TokenFile, "token-file", "", "`FILE` of the token that chief and workers share, for mutual TLS between them; - is the first line of standard input (default: the value of "+tokenVariable+")")
	f.StringVar(&o.Cert, "tls-cert", "", "instead of a token: `FILE` of this process's certificate, PEM, for servers and clients")
	f.StringVar(&o.Key, "tls-key", "", "`FILE` of the certificate's key, PEM")
	f.StringVar(&o.CA, "tls-ca", "", "`FILE` of the authorities that sign the others' certificates, PEM")
	help.Group(f, "How chief and workers reach each other", accessFlags...)
	return func(stdin io.Reader) (access, error) {
		if sockets != "" {
			if o != (peertls.Options{}) {
				return access{}, usagef("--sockets is given with --token-file or --tls-cert; expected one of them: sockets are for one machine and have no keys")
			}
			return access{sockets: sockets}, nil
		}
		if f.Changed("sockets") {
			return access{}, usagef("--sockets is empty; expected a folder")
		}
		if o == (peertls.Options{}) {
			o.TokenFile = os.Getenv(tokenVariable)
		}
		keys, err := o.Load(stdin)
		if err != nil {
			return access{}, usagef("%w", err)
		}
		return access{keys: keys}, nil
	}
}

// accessOfTraining reads how a training reaches workers, which its environment says after that.
func accessOfTraining(f *pflag.FlagSet, read func(io.Reader) (access, error), stdin io.Reader, p params.Params, env *train.Env) (access, error) {
	if p.Strategy.TPU != "" {
		if err := refuseAccess(f); err != nil {
			return access{}, err
		}
	}
	by, err := read(stdin)
	if by.keys != nil {
		env.Keys = by.keys
	}
	env.Sockets = by.sockets
	return by, err
}

// keysForWorkers adds the keys of the environment's token, if there is one, to the environment of a
// command whose settings name workers and that has no flags of keys.
func keysForWorkers(settings []string, env *train.Env) error {
	o := peertls.Options{TokenFile: os.Getenv(tokenVariable)}
	if o.TokenFile == "" || !slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "strategy.workers=") }) {
		return nil
	}
	keys, err := o.Load(strings.NewReader(""))
	if err != nil {
		return usagef("%s: %w", tokenVariable, err)
	}
	env.Keys = keys
	return nil
}

// refuseAccess returns an error if flags of keys or sockets are given with a TPU.
func refuseAccess(f *pflag.FlagSet) error {
	for _, name := range accessFlags {
		if f.Changed(name) {
			return usagef("--%s is given with --tpu; leave it out: a TPU's server has a port, and no TLS", name)
		}
	}
	return nil
}

// untilEnd returns a context that ends when the input does.
func untilEnd(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in) // whatever ends it
		cancel()
	}()
	return ctx, cancel
}
