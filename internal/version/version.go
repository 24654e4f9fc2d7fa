// Package version says which gorbit a program is.
package version

import (
	"runtime/debug"
	"strings"
)

// release is the version that the sources lead to, for builds that know no tag.
const release = "0.1.0"

// described is set by the linker (see the Makefile): what git describe --always says of the
// commit that was built.
var described string

// String returns the version: that of the release where a tagged one was built, such as 0.1.0,
// and otherwise the one that the sources lead to and the commit: 0.1.0-dev+d58c3a9. What was
// changed since the commit is marked by "dirty". A build that knows no commit is 0.1.0-dev.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return version(described, info)
}

func version(described string, info *debug.BuildInfo) string {
	if strings.HasPrefix(described, "v") {
		return described[1:]
	}
	commit := strings.Replace(described, "-", ".", 1) // -dirty
	if commit == "" && info != nil {
		commit = commitOf(info)
		// The go command's own version, but for its name of a commit that no tag leads to.
		v := info.Main.Version
		if strings.HasPrefix(v, "v") && (commit == "" || !strings.HasPrefix(v, "v0.0.0-")) {
			return v[1:]
		}
	}
	if commit == "" {
		return release + "-dev"
	}
	return release + "-dev+" + commit
}

// commitOf returns the commit that the go command has put into a program, in the form of git
// describe, or "".
func commitOf(info *debug.BuildInfo) string {
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 7)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
