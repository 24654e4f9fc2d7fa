#!/usr/bin/env bash
# Runs the tests of numbers as if the processor were another one, and prints which passed.
#
#     tools/elsewhere.sh [DISTURBANCE ...]        # all of them, of all packages: hours
#     PACKAGES=./train FLAGS=-test.short tools/elsewhere.sh one-lane avx2
#
# A test that passes at home and fails here asserts what rounding, the processor's kind or the number
# of its cores decides: the test is wrong, or the product is. What each said is in .cache/elsewhere.
set -uo pipefail
cd "$(dirname "$0")/.."
source .tf/env
export TF_CPP_MIN_LOG_LEVEL=2

# The packages that compute, in TensorFlow or in kernels of their own; FAST are those that a processor
# in software gets through in minutes.
COMPUTE="./runner ./strategy/... ./internal/exec/kernels ./internal/app/saved ./train/... ./cmd/gorbit"
FAST="./runner ./strategy/internal/compose ./internal/exec/kernels"
FLAGS=${FLAGS:-}
ALL=(at-home no-onednn avx512 avx2 generic no-kernels one-lane four-lanes other-seed haswell epyc)

# What a disturbance is: settings of the environment, a command in front of the tests, a change of
# the source text that only the compiler sees, and whether Python's tests can tell.
disturb() {
  environment=() front=() files='' change='' skip='' packages=${PACKAGES:-$COMPUTE} python=''
  case $1 in
    at-home) python=yes ;;
    no-onednn) # programs turn it on again, as a param says
      environment=(TF_ENABLE_ONEDNN_OPTS=0) python=yes
      files=cmd/gorbit change='s/tfprocess\.OneDNN\(/&false \&\& /' ;;
    avx512) environment=(ONEDNN_MAX_CPU_ISA=AVX512_CORE GOMAXPROCS=4) python=yes ;; # without VNNI, bf16, AMX
    avx2) environment=(ONEDNN_MAX_CPU_ISA=AVX2 GORBIT_KERNELS=avx2) python=yes ;;
    generic) environment=(GORBIT_KERNELS=generic) ;;
    no-kernels) # but for tests that look for kernels in the graph
      files=strategy/internal/compose change='s/:= kernels\.Ops\(\)/&[:0]/'
      skip='^(TestKernelsEqualStandardOps|TestOptimizers|TestXLA|TestKernelsLeaveNarrowAttention|TestTextModelLaws|TestMicroBatchesWithoutPadding)$' ;;
    one-lane) environment=(GOMAXPROCS=1) front=(taskset -c 0) python=yes ;;
    four-lanes) environment=(GOMAXPROCS=4) files='train strategy' change='s/runtime\.NumCPU\(\)/(4 + 0*&)/' ;;
    other-seed) files=train/params change='s/(Name: "seed", Default: )42,/\14343,/' ;;
    haswell) front=(qemu-x86_64-static -cpu Haswell) packages=${PACKAGES:-$FAST} ;; # Intel without AVX-512
    epyc) front=(qemu-x86_64-static -cpu EPYC) packages=${PACKAGES:-$FAST} ;;       # AMD without AVX-512
    *) echo "there is no disturbance $1; expected some of ${ALL[*]}" >&2; exit 2 ;;
  esac
  [ -z "${PACKAGES:-}" ] || python=''
}

# overlay writes the change for go build -overlay. A change that finds nothing is an error.
overlay() {
  local file n=0 replaced=''
  for file in $(find $files -name '*.go' -not -name '*_test.go'); do
    sed -E "$change" "$file" >"$work/changed"
    cmp -s "$file" "$work/changed" && continue
    n=$((n + 1))
    mv "$work/changed" "$work/$n.go"
    replaced+="${replaced:+,}\"$PWD/$file\":\"$work/$n.go\""
  done
  [ $n -gt 0 ] || { echo "tools/elsewhere.sh: $change changes nothing in $files" >&2; exit 1; }
  echo "{\"Replace\":{$replaced}}" >"$work/overlay.json"
}

# report runs a command, keeps what it says, and prints a row of the table.
report() { # DISTURBANCE WHAT COMMAND...
  local log=".cache/elsewhere/$1.$(tr -d . <<<"$2" | tr / -)" result=ok failed
  mkdir -p .cache/elsewhere
  "${@:3}" >"$log" 2>&1 || result=FAIL failures=$((failures + 1))
  failed=$(grep -aoE '^(--- FAIL: [A-Za-z0-9_]+|FAILED [^ ]+)' "$log" | sed 's/.* //' | paste -sd' ')
  [ "$result$failed" != FAIL ] || failed="ended in $(grep -aoE '^=== (RUN|NAME) .*' "$log" | tail -1 | awk '{ print $3 }')"
  printf '%-11s %-30s %-5s %s\n' "$1" "$2" "$result" "$failed"
}

# tests builds the tests of a package and runs them.
tests() { # PACKAGE
  local flags=()
  [ -z "$change" ] || flags=("-overlay=$work/overlay.json")
  nice -n 5 go test -c "${flags[@]}" -o "$work/test" "$1" || return 1
  env -C "$1" "${environment[@]}" nice -n 5 "${front[@]}" "$work/test" -test.v -test.timeout=60m -test.skip="$skip" $FLAGS
}

failures=0 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- "${ALL[@]}"
for name in "$@"; do
  disturb "$name"
  [ -z "$change" ] || overlay # before hours of work
done
for name in "$@"; do
  disturb "$name"
  [ -z "$change" ] || overlay
  if [ "${front[*]}" ] && ! command -v "${front[0]}" >/dev/null; then
    printf '%-11s left out: there is no %s; Debian has it in qemu-user-static\n' "$name" "${front[0]}"
    continue
  fi
  for folder in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' $packages); do
    report "$name" ".${folder#"$PWD"}" tests ".${folder#"$PWD"}"
  done
  [ -z "$python" ] || report "$name" tools/tests \
    env -C tools "${environment[@]}" nice -n 5 "${front[@]}" ../.venv/bin/python -m pytest -q tests
done
exit $((failures > 0))
