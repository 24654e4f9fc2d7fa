// Package version provides the version of gorbit.
package version

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// release is the next release, for builds without a tag.
const release = "0.1.0"

// described is the output of git describe --always for the built commit. The linker sets it
// (see the Makefile).
var described string

// String returns the version: that of the release for a build of a tag, such as 0.1.0, and
// otherwise the next release and the commit, such as 0.1.0-dev+d58c3a9. Uncommitted changes
// are marked by "dirty", also after a tag: such a build is no release. A build without a known
// commit is 0.1.0-dev.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return version(described, info)
}

// later matches git describe's name of a commit after a tag, and of a tag with uncommitted changes.
var later = regexp.MustCompile(`^v.*?(?:-\d+-g([0-9a-f]+))?(-dirty)?$`)

func version(described string, info *debug.BuildInfo) string {
	commit := described
	if m := later.FindStringSubmatch(described); m != nil {
		if commit = m[1] + m[2]; commit == "" {
			return described[1:]
		}
	}
	commit = strings.TrimPrefix(strings.Replace(commit, "-", ".", 1), ".") // -dirty
	if commit == "" && info != nil {
		commit = commitOf(info)
		// The go command's own version, except for its name of a commit without a tag.
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

// commitOf returns the commit that the go command has recorded in a program, in the form of
// git describe, or "".
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
