package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/train/params"
)

// SameMeaning returns a *PreflightError if the numbers in the data of params do not mean what the run in a
// folder learned: labels, categories or tokens. Runs that are compared must agree in that.
func SameMeaning(ctx context.Context, p params.Params, folder string, env Env) error {
	s, err := newSetup(ctx, p, env.prepare())
	if err != nil {
		return err
	}
	if err := s.openData(); err != nil {
		return err
	}
	f := preflightOf(s)
	f.runMeaning(folder)
	return f.err()
}
