package train

import (
	"fmt"
	"log/slog"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// preflight checks a run before its graph is composed.
type preflight struct {
	params   params.Params
	contract *graphs.Contract
	records  *data
	log      *slog.Logger
	found    PreflightError
}

// add adds a finding.
func (f *preflight) add(format string, args ...any) {
	f.found.Findings = append(f.found.Findings, fmt.Sprintf(format, args...))
}

// of returns the manifest's entry for a split, or nil if there is none.
func (f *preflight) of(split string) *convert.Split {
	if f.records.manifest == nil {
		return nil
	}
	return f.records.manifest.Splits[split]
}
