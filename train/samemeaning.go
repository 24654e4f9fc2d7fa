package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/params"
)

// SameMeaning returns a *PreflightError if the numbers in the data of params do not mean what the run in a
// folder learned: labels, categories or tokens. Runs that are compared must agree in that.
func SameMeaning(ctx context.Context, p params.Params, folder string, env Env) error {
	env = env.withDefaults()
	s, err := prepare.New(ctx, p, env.prepare())
	if err != nil {
		return err
	}
	if err := s.OpenData(); err != nil {
		return err
	}
	f := prepare.PreflightOf(s)
	f.RunMeaning(folder)
	return f.Err()
}
