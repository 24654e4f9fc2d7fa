package main

import (
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/train/params"
)

// TestElsewhere wants what is suggested for other programs' options to be there, and the options
// not to be ours.
func TestElsewhere(t *testing.T) {
	cmd, _, err := newRoot().Find([]string{"train"})
	if err != nil {
		t.Fatal(err)
	}
	params := params.Defaults().Flat()
	for name, ours := range elsewhere {
		if cmd.Flags().Lookup(name) != nil {
			t.Errorf("--%s is a flag of ours", name)
		}
		flag, rest, _ := strings.Cut(strings.TrimPrefix(strings.ReplaceAll(ours, ",", ""), "--"), " ")
		if cmd.Flags().Lookup(flag) == nil {
			t.Errorf("%s: there is no flag --%s", name, flag)
		}
		param, _, _ := strings.Cut(rest, "=")
		if _, ok := params[param]; flag == "set" && !ok {
			t.Errorf("%s: there is no param %s", name, param)
		}
	}
}
