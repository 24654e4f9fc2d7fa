#!/usr/bin/env bash
# Sets up everything that gorbit builds on, inside the checkout: the Python
# environment with TensorFlow and the exporter (.venv), and the TensorFlow
# library for Go (.tf). A second run finds nothing to do and says nothing.
#
# Usage: tools/setup.sh [cpu|gpu|tpu]
#   The flavour of the TensorFlow library; without one, the flavour that is set
#   up already, or cpu.
# Environment: RELEASE, the release of TensorFlow, 2.18 to 2.21; without one, the
# one that is set up already, or 2.18. PYTHON, the interpreter to make .venv with.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

# Stamps of checkouts that had one release only have the folder in its place.
have=$(sed 's|^\([a-z]*\) /|\1 2.18 /|' .tf/stamp 2>/dev/null || true)
read -r flavour release _ <<<"$have"
flavour=${1:-${flavour:-cpu}}
[ "$flavour" != tpu ] || release=2.18 # the only one with a wheel for TPUs
release=${RELEASE:-$release}
# The Pythons that the release has wheels for, by their second number.
case "${release:=2.18}" in
2.18 | 2.19) oldest=9 newest=12 ;;
2.20) oldest=9 newest=13 ;;
2.21) oldest=10 newest=13 ;;
*) echo "setup: RELEASE is $release; expected 2.18, 2.19, 2.20 or 2.21" >&2; exit 2 ;;
esac
processor=$(uname -m)
# ARM has one flavour, under the name of all flavours.
[ "$flavour" = cpu ] || [ "$processor" = x86_64 ] || { echo "setup: TF is $flavour on $processor; expected cpu, the only flavour there is for it" >&2; exit 2; }
case "$flavour" in
cpu) [ "$processor" = x86_64 ] && wheel="tensorflow-cpu==$release.*" || wheel="tensorflow==$release.*" ;;
gpu) wheel="tensorflow[and-cuda]==$release.*" ;;
tpu)
  wheel='tensorflow-tpu==2.18.0'
  [ "$release" = 2.18 ] || { echo "setup: RELEASE is $release; expected 2.18, the only one with a wheel for TPUs" >&2; exit 2; }
  ;;
*) echo "setup: TF is $flavour; expected cpu, gpu or tpu" >&2; exit 2 ;;
esac

[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); TensorFlow's library for Go is set up on Linux only"
command -v go >/dev/null || fail "Go is missing: install Go 1.26 or later (https://go.dev/dl) and put it on PATH"
go version >/dev/null 2>&1 || fail "$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) is too old: install Go 1.26 or later (https://go.dev/dl) and put it on PATH"

# cgo takes gcc unless told otherwise, also where only another compiler is there.
cc=${CC:-}
for c in "$(go env CC)" cc clang; do
  [ -n "$cc" ] || ! command -v "${c%% *}" >/dev/null || cc=$c
done
if [ -z "$cc" ] || ! echo '#include <stdlib.h>' | $cc -x c -fsyntax-only - 2>/dev/null; then
  fail "a C compiler that works is missing: install gcc or clang (Debian, Ubuntu: apt-get install gcc libc6-dev)"
fi

usable() { "$1" -c "import sys; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null; }
python=${PYTHON:-}
if [ -z "$python" ]; then
  for p in python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
    if command -v "$p" >/dev/null && usable "$p"; then python=$p; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.$oldest to 3.$newest found (TensorFlow $release has no other): install one, or name it with PYTHON=..."
fi
usable "$python" || fail "$python is not a Python 3.$oldest to 3.$newest: TensorFlow $release has no other"

# The stamp holds what the set-up depends on: after a change of the flavour, the
# folder, the interpreter or the requirements, it is made again.
want="$flavour $release $PWD $("$python" -V 2>&1) $cc $(cat tools/pyproject.toml tools/setup.sh cmd/gorbit-setup/loader/* $(ls cmd/gorbit-setup/*.go | grep -v _test) | cksum)"
if [ "$have" = "$want" ] && [ -x .venv/bin/python ] && [ -e .tf/env ]; then
  exit 0
fi

# quietly runs a command and shows its output only if it fails. The first argument is
# the message for that case.
quietly() {
  local say=$1 log=.tf/setup.log
  shift
  "$@" >"$log" 2>&1 </dev/null || fail "$say (the output is in $PWD/$log)"
}

size=
[ "$flavour" != gpu ] || size=' (with CUDA, 5 GB)'
echo "setup: installing $wheel$size and the exporter into .venv, and the library for Go into .tf; this takes a minute or two, once"
rm -rf .tf
mkdir -p .tf
echo "$flavour $release is not whole" >.tf/stamp # what to set up the next time, if this fails
# The wheels of two flavours hold the same files, and an environment does not
# work at another place.
if [ "${have%% Python *}" != "$flavour $release $PWD" ] || ! usable .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  rm -rf .venv
  quietly "could not make a virtual environment: install Python's venv and pip (Debian, Ubuntu: apt-get install python3-venv)" \
    "$python" -m venv .venv
fi
tf=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/tensorflow # where pip puts it
# To compile every module of TensorFlow takes half of pip's time, and few of them are ever imported:
# those are compiled below.
pip=(.venv/bin/python -m pip install --disable-pip-version-check --no-input --no-compile)
failed="pip could not install $wheel and the exporter: check the network, or the package index that pip uses"
# tpu installs the wheel by its parts, and makes $wheel what is left to install. It asks for a libtpu that
# no package index has, only a list of Google's. The one that package indexes have of that time exports all
# functions that TensorFlow 2.18.0 looks for; pip check says that it is another one.
tpu() {
  local list=https://storage.googleapis.com/libtpu-tf-releases/index.html
  if ! "${pip[@]}" --no-deps --retries 1 --timeout 20 --find-links "$list" libtpu==2.18.0 >.tf/setup.log 2>&1 </dev/null; then
    echo "setup: libtpu 2.18.0, which $wheel asks for, cannot be had from $list; taking libtpu 0.0.1, built two weeks before, in its place" >&2
    quietly "pip could not install libtpu: check the network, or the package index that pip uses" "${pip[@]}" --no-deps libtpu==0.0.1
  fi
  quietly "$failed" "${pip[@]}" --no-deps "$wheel"
  .venv/bin/python - >.tf/requirements <<'PY'
from importlib import metadata

wanted = metadata.requires("tensorflow-tpu")
print(*(line for line in wanted if not line.startswith("libtpu") and "extra ==" not in line), sep="\n")
PY
  wheel='--requirement=.tf/requirements'
  # Whatever imports TensorFlow first would crash: tools/gorbit_export/__init__.py says why.
  echo 'import hashlib, ssl' >"$tf/../gorbit_openssl.pth"
}
[ "$flavour" != tpu ] || tpu
quietly "$failed" "${pip[@]}" "$wheel" --editable './tools[test]'
# Without its dependencies: it asks for a flavour of TensorFlow beside the one that is here.
quietly "pip could not install tf-keras: check the network, or the package index that pip uses" "${pip[@]}" --no-deps "tf-keras==$release.*"
# The exporter first: it keeps the wheel for TPUs from looking for chips.
quietly "TensorFlow cannot be imported" env PYTHONDONTWRITEBYTECODE= .venv/bin/python -c 'import gorbit_export, tensorflow'

[ -e "$tf/libtensorflow_cc.so.2" ] || fail "$tf holds no libtensorflow_cc.so.2: not a wheel of TensorFlow?"
if [ "$flavour" = gpu ]; then
  for file in cudnn/lib/libcudnn.so.9 cublas/lib/libcublas.so.12 cuda_runtime/lib/libcudart.so.12 cuda_nvcc/bin/ptxas; do
    [ -e "$tf/../nvidia/$file" ] || fail "pip installed TensorFlow without nvidia/$file, which it needs on a GPU: check that nothing keeps pip from installing nvidia-*-cu12"
  done
fi

# What programs are linked with, and the flags for that: cmd/gorbit-setup makes them for every Go module.
# Its flags of .tf/env take the place of those in the environment.
flags=$(export CC="$cc" CGO_ENABLED=1 CGO_CFLAGS=-O2 CGO_LDFLAGS=
  go run -buildvcs=false ./cmd/gorbit-setup --python .venv/bin/python --folder .tf --print) || exit 1
cat > .tf/env <<ENV
# Made by tools/setup.sh: what cgo needs to find TensorFlow.
export CC="$cc"
export CGO_ENABLED=1
$flags
ENV

echo "$want" > .tf/stamp
