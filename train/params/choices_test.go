package params

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestMeant(t *testing.T) {
	for name, want := range map[string]string{
		"train.stps":             "train.steps",
		"train.learning_rate":    "optimizer.learning_rate", // in another section
		"learning-rate":          "optimizer.learning_rate",
		"optimizer.learing_rate": "optimizer.learning_rate",
		"weight-decay":           "optimizer.weight_decay",
		"steps":                  "", // of two sections
		"nonsense":               "",
	} {
		if got := Meant(name); got != want {
			t.Errorf("Meant(%q) is %q; expected %q", name, got, want)
		}
	}
}

// TestChoices wants the default of every param with choices to be one of them, and other values to be
// refused with what was most likely meant.
func TestChoices(t *testing.T) {
	defaults := Defaults()
	if err := defaults.checkChoices(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for _, c := range choices() {
		p := Defaults()
		meant := c.of[len(c.of)-1]
		if err := p.Set(c.param + "=\"" + meant + "s\""); err != nil {
			t.Fatal(err)
		}
		err := p.Validate()
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.param+" is \""+meant+"s\"; expected ") {
			t.Errorf("%s: error is %v; expected a usage error", c.param, err)
		}
		if len(meant) > 3 && !strings.HasSuffix(err.Error(), "did you mean "+meant+"?") {
			t.Errorf("%s: error is %v; expected it to name %s", c.param, err, meant)
		}
		if len(Choices(c.param)) != len(c.of) {
			t.Errorf("Choices(%q) is %v; expected %v", c.param, Choices(c.param), c.of)
		}
	}
}
