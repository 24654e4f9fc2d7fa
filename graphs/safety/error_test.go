package safety

import (
	"strings"
	"testing"
)

// Names come from a file: what a terminal would obey is quoted, and what is too long is cut.
func TestNamesInErrors(t *testing.T) {
	for _, op := range []string{"Foo\x1b[31m", "Foo" + strings.Repeat("x", 5000)} {
		msg := (&Error{"model", "m", []Use{{"serving", op, "is unknown"}}}).Error()
		if strings.ContainsRune(msg, 0x1b) || len(msg) > 600 || !strings.Contains(msg, `"Foo`) {
			t.Errorf("%d bytes: %.300q", len(msg), msg)
		}
	}
	if msg := Refuse("model", "m", []Use{{"serving", "ReadFile", "reads files"}}, nil).Error(); !strings.HasSuffix(msg, "--allow-op ReadFile") {
		t.Error(msg)
	}
}

func TestUnused(t *testing.T) {
	uses := []Use{{"serving", "ReadFile", "reads files"}, {"predict", "PyFunc", "runs Python"}}
	if got := Unused(uses, []string{"WriteFile", "PyFunc"}); len(got) != 1 || got[0] != "WriteFile" {
		t.Errorf("unused: %v, want WriteFile", got)
	}
	if got := Unused(nil, nil); len(got) != 0 {
		t.Errorf("unused: %v, want none", got)
	}
}
