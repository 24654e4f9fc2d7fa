package main

import "testing"

func TestOneLine(t *testing.T) {
	for _, test := range []struct{ message, want string }{
		{"one sentence", "one sentence"},
		{"training step: indices[512] = 512 is not in [0, 512)\n\t [[{{node GatherV2_1}}]]", "training step: indices[512] = 512 is not in [0, 512)"},
		{"first\nsecond\n", "first; second"},
	} {
		if got := oneLine(test.message); got != test.want {
			t.Errorf("oneLine(%q) is %q, want %q", test.message, got, test.want)
		}
	}
}
