package packed

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Packing: "tight"}, `packing is "tight"`},
		{Config{RowLength: -1}, "row length is -1"},
		{Config{RowLength: 1 << 20}, "row length"},
		{Config{RowLength: 1 << 12}, "too large"},
		{Config{MaxTokens: -1}, "maximum tokens of an example is -1"},
		{Config{Labels: "maybe"}, `labels are "maybe"`},
		{Config{NumLabels: -1}, "numbers of labels"},
		{Config{Features: FeatureNames{InputIDs: []string{}}}, "no feature name"},
		{Config{Features: FeatureNames{Label: []string{}}}, "no feature name"},
	} {
		if err := c.config.Validate(1 << 20); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, expected it to say %q", c.config, err, c.want)
		}
	}
}
