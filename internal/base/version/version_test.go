package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	built := func(main string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "d58c3a9bb2d1e4a7f6c5"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, test := range map[string]struct {
		described string
		info      *debug.BuildInfo
		want      string
	}{
		"a tag":                         {"v0.2.0", built("(devel)"), "0.2.0"},
		"commits after a tag":           {"v0.2.0-3-gd58c3a9", built(""), "0.1.0-dev+d58c3a9"},
		"commits after a tag, changed":  {"v0.2.0-3-gd58c3a9-dirty", built(""), "0.1.0-dev+d58c3a9.dirty"},
		"a tag, changed":                {"v0.2.0-dirty", built("(devel)"), "0.1.0-dev+dirty"},
		"a candidate":                   {"v0.2.0-rc.1", built("(devel)"), "0.2.0-rc.1"},
		"commits after a candidate":     {"v0.2.0-rc.1-12-gd58c3a9", built("(devel)"), "0.1.0-dev+d58c3a9"},
		"no tag":                        {"d58c3a9", built("(devel)"), "0.1.0-dev+d58c3a9"},
		"no tag, changed":               {"d58c3a9-dirty", built("(devel)"), "0.1.0-dev+d58c3a9.dirty"},
		"go install of a release":       {"", built("v0.3.1"), "0.3.1"},
		"go install of a commit":        {"", built("v0.0.0-20261122030831-d58c3a9bb2d1"), "0.0.0-20261122030831-d58c3a9bb2d1"},
		"go build":                      {"", built("v0.0.0-20261122030831-d58c3a9bb2d1", revision), "0.1.0-dev+d58c3a9"},
		"go build of a tag":             {"", built("v0.2.0", revision), "0.2.0"},
		"go build, changed":             {"", built("v0.0.0-20261122030831-d58c3a9bb2d1+dirty", revision, changed), "0.1.0-dev+d58c3a9.dirty"},
		"go build that asks no git":     {"", built("(devel)"), "0.1.0-dev"},
		"nothing is known of the build": {"", nil, "0.1.0-dev"},
	} {
		if got := version(test.described, test.info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
