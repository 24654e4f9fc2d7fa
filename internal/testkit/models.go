package testkit

import (
	_ "embed"
	"testing"
)

// models.py exports models that the Go side knows nothing of: all that it does with them comes from
// their contracts.
//
//go:embed models.py
var models string

// Models returns a folder with the exports of models.py: flowers, words and weather, and plants, which
// is made by the command that users give, of a file like theirs.
func Models(t testing.TB) string {
	t.Helper()
	return Made(t, models)
}
