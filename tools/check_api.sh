#!/usr/bin/env bash
# Compares the names that other modules can use with those of the last release, by apidiff, and fails
# if something that used them would not compile any more.
#
# Usage: tools/check_api.sh [REVISION]
#   REVISION, a tag or a commit, stands in for the last release (the newest tag v*).
set -euo pipefail
cd "$(dirname "$0")/.."

git() { command git -c safe.directory='*' "$@"; }
old=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$old" ]; then
  echo "check-api: there is no release yet (no tag v*), so nothing was compared; make check-api API=REVISION compares with a commit"
  exit 0
fi
if ! git rev-parse --verify --quiet "$old^{commit}" >/dev/null; then
  echo "check-api: there is no $old; expected a tag or a commit" >&2
  exit 2
fi
module=$(go list -m)
work=$PWD/.cache/api
rm -rf "$work"
mkdir -p "$work/old"
git archive "$old" | tar -x -C "$work/old"
go build -modfile=tools/apidiff.mod -o "$work/apidiff" golang.org/x/exp/cmd/apidiff
(cd "$work/old" && "$work/apidiff" -m -w "$work/old.api" "$module")
"$work/apidiff" -m -w "$work/new.api" "$module"
"$work/apidiff" -m "$work/old.api" "$work/new.api" | tee "$work/changes"
incompatible=$("$work/apidiff" -m -incompatible "$work/old.api" "$work/new.api")
rm -rf "$work/old"
if [ -n "$incompatible" ]; then
  echo "check-api: programs that were written for $old may not compile; say so in CHANGELOG.md" >&2
  exit 1
fi
[ -s "$work/changes" ] || echo "check-api: the public names are those of $old"
