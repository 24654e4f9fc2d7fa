#!/usr/bin/env bash
# Sets up everything that gorbit builds on, inside the checkout: the Python
# environment with TensorFlow and the exporter (.venv), and the TensorFlow
# library for Go (.tf). A second run finds nothing to do and says nothing.
#
# Usage: tools/setup.sh [cpu|gpu|tpu]
# Environment: PYTHON, the interpreter to make .venv with (3.9 to 3.12).
set -euo pipefail
cd "$(dirname "$0")/.."

flavour=${1:-cpu}
case "$flavour" in
cpu) wheel='tensorflow-cpu==2.18.*' ;;
gpu) wheel='tensorflow[and-cuda]==2.18.*' ;;
tpu) wheel='tensorflow-tpu==2.18.0' ;;
*) echo "setup: TF=$flavour is none of cpu, gpu, tpu" >&2; exit 2 ;;
esac

fail() { echo "setup: $*" >&2; exit 1; }

command -v go >/dev/null || fail "Go is missing: install Go 1.26 or later (https://go.dev/dl) and put it on PATH"
command -v "${CC:-cc}" >/dev/null || fail "a C compiler is missing: install gcc or clang (Debian: apt-get install gcc libc6-dev)"

usable() { "$1" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }
python=${PYTHON:-}
if [ -z "$python" ]; then
  for p in python3 python3.12 python3.11 python3.10 python3.9; do
    if command -v "$p" >/dev/null && usable "$p"; then python=$p; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.9 to 3.12 found (TensorFlow 2.18 has no other): install one, or name it with PYTHON=..."
fi
usable "$python" || fail "$python is not a Python 3.9 to 3.12: TensorFlow 2.18 has no other"

# The stamp holds what the environment was made from: a change of flavour or
# of the requirements makes it again.
want="$flavour $("$python" -V 2>&1) $(cat tools/pyproject.toml tools/setup.sh | cksum)"
if [ "$(cat .tf/stamp 2>/dev/null || true)" = "$want" ] && [ -x .venv/bin/python ] && [ -e .tf/lib/libtensorflow.so ]; then
  exit 0
fi

echo "setup: Python environment and TensorFlow ($wheel) in .venv; this happens once"
rm -rf .tf
mkdir -p .tf/lib
if ! [ -x .venv/bin/python ] || ! usable .venv/bin/python; then
  rm -rf .venv
  "$python" -m venv .venv || fail "could not make a virtual environment: install the venv module (Debian: apt-get install python3-venv)"
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check "$wheel"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable './tools[test]'

# The wheel's library under the names that a linker looks for.
tf=$(.venv/bin/python -c 'import importlib.util as u; print(u.find_spec("tensorflow").submodule_search_locations[0])')
[ -e "$tf/libtensorflow_cc.so.2" ] || fail "$tf holds no libtensorflow_cc.so.2: not a TensorFlow 2.18 wheel?"
ln -sf "$tf/libtensorflow_cc.so.2" .tf/lib/libtensorflow.so
ln -sf "$tf/libtensorflow_cc.so.2" .tf/lib/libtensorflow_cc.so.2
ln -sf "$tf/libtensorflow_framework.so.2" .tf/lib/libtensorflow_framework.so
ln -sf "$tf/libtensorflow_framework.so.2" .tf/lib/libtensorflow_framework.so.2
ln -sfn "$tf/include" .tf/include

cat > .tf/env <<ENV
# Made by tools/setup.sh: what cgo needs to find TensorFlow.
export CGO_ENABLED=1
export CGO_CFLAGS="-O2 -I$PWD/.tf/include"
export CGO_LDFLAGS="-L$PWD/.tf/lib -Wl,-rpath,$PWD/.tf/lib"
ENV
echo "$want" > .tf/stamp
