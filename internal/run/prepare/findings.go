package prepare

import (
	"fmt"
	"log/slog"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Preflight checks a run before its graph is composed.
type Preflight struct {
	params   params.Params
	contract *graphs.Contract
	records  *Data
	log      *slog.Logger
	// Found has what is wrong with the run.
	Found params.PreflightError
}

// add adds a finding.
func (f *Preflight) add(format string, args ...any) {
	f.Found.Findings = append(f.Found.Findings, fmt.Sprintf(format, args...))
}

// of returns the manifest's entry for a split, or nil if there is none.
func (f *Preflight) of(split string) *convert.Split {
	if f.records.Manifest == nil {
		return nil
	}
	return f.records.Manifest.Splits[split]
}
