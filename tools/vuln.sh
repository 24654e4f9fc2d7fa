#!/usr/bin/env bash
# Looks for known vulnerabilities in the functions of programs of Go, by govulncheck, and fails if it
# finds one. Where the Go project's database cannot be reached, a line says that nothing was checked.
#
# Usage: tools/vuln.sh PROGRAM...
# Environment: VULNDB, a folder with a copy of the database (its vulndb.zip, unpacked), or the address
# of another one. One that is named must be readable.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "check-vuln: $*" >&2; exit 1; }

for program in "$@"; do
  [ -f "$program" ] || fail "$program is not built: run make build"
done
db=${VULNDB:-https://vuln.go.dev}
case $db in
http://* | https://* | file://*) ;;
*)
  [ -f "$db/index/modules.json" ] || fail "VULNDB is $db, which has no index/modules.json; expected a copy of the Go vulnerability database: unpack its vulndb.zip there"
  db=file://$(cd "$db" && pwd)
  ;;
esac
work=$PWD/.cache/vuln
mkdir -p "$work"
# Its own module, so that the tool's dependencies are not those of programs that import gorbit.
GOFLAGS=-buildvcs=false CGO_ENABLED=0 go build -modfile=tools/vuln.mod -o "$work/govulncheck" golang.org/x/vuln/cmd/govulncheck ||
  fail "govulncheck cannot be built, as it says above; check the network and Go's module proxy"
for program in "$@"; do
  rc=0
  "$work/govulncheck" -db "$db" -mode binary -show version "$program" >"$work/said" 2>"$work/errors" || rc=$?
  case $rc in
  0) echo "check-vuln: $program calls nothing with a known vulnerability ($(sed -n 's/^DB updated: /database of /p' "$work/said"))" ;;
  3)
    cat "$work/said"
    fail "$program has functions with known vulnerabilities, as it says above; expected none: update the modules or Go, and build again"
    ;;
  *)
    why=$(tail -n 1 "$work/errors")
    if [ -z "${VULNDB:-}" ] && grep -q 'fetching vulnerabilities' "$work/errors"; then
      echo "check-vuln: not checked for known vulnerabilities, as the database cannot be reached (${why#govulncheck: }); VULNDB=FOLDER takes a copy of it"
      exit 0
    fi
    fail "govulncheck cannot check $program: ${why#govulncheck: }"
    ;;
  esac
done
