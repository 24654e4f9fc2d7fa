package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/help"
	"github.com/gorbit-ml/gorbit/internal/peertls"
	"github.com/gorbit-ml/gorbit/train"
)

// tokenVariable is the environment variable of --token-file.
const tokenVariable = "GORBIT_TOKEN_FILE"

// keyFlags are the flags of the keys by which chief and workers know each other.
var keyFlags = []string{"token-file", "tls-cert", "tls-key", "tls-ca"}

// addKeys adds the flags of keys. The function that it returns reads the keys, of which standard
// input may hold the token; they are nil where none are given.
func addKeys(f *pflag.FlagSet) func(stdin io.Reader) (*peertls.Keys, error) {
	var o peertls.Options
	f.StringVar(&o.TokenFile, "token-file", "", "`FILE` of the token that chief and workers share, for mutual TLS between them; - is the first line of standard input (default: the value of "+tokenVariable+")")
	f.StringVar(&o.Cert, "tls-cert", "", "instead of a token: `FILE` of this process's certificate, PEM, for servers and clients")
	f.StringVar(&o.Key, "tls-key", "", "`FILE` of the certificate's key, PEM")
	f.StringVar(&o.CA, "tls-ca", "", "`FILE` of the authorities that sign the others' certificates, PEM")
	help.Group(f, "Keys of chief and workers", keyFlags...)
	return func(stdin io.Reader) (*peertls.Keys, error) {
		if o == (peertls.Options{}) {
			o.TokenFile = os.Getenv(tokenVariable)
		}
		keys, err := o.Load(stdin)
		if err != nil {
			return nil, usagef("%w", err)
		}
		return keys, nil
	}
}

// keysOfTraining reads the keys of a training, which are in its environment after that.
func keysOfTraining(f *pflag.FlagSet, read func(io.Reader) (*peertls.Keys, error), stdin io.Reader, p train.Params, env *train.Env) (*peertls.Keys, error) {
	if p.Strategy.TPU != "" {
		if err := refuseKeys(f, "a TPU's server has no TLS"); err != nil {
			return nil, err
		}
	}
	keys, err := read(stdin)
	if keys != nil {
		env.Keys = keys
	}
	return keys, err
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

// refuseKeys returns an error if flags of keys are given.
func refuseKeys(f *pflag.FlagSet, why string) error {
	for _, name := range keyFlags {
		if f.Changed(name) {
			return usagef("--%s is given with --tpu; leave it out: %s", name, why)
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
