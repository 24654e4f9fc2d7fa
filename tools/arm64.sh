#!/usr/bin/env bash
# Builds the programs for 64-bit ARM on x86-64 Linux, in bin/arm64. What that needs besides Debian's
# packages is set up in .cache/arm64: TensorFlow's library, and the settings for the go command (env).
# A second run fetches nothing.
#
#     source .cache/arm64/env && go test ./tfrecord    # in an emulator
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "arm64: $*" >&2; exit 1; }

[ "$(uname -sm)" = "Linux x86_64" ] || fail "this is $(uname -sm); expected Linux x86_64, on which programs for ARM are built by a cross compiler; on ARM itself, run make build"
missing=
for pair in aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static; do
  command -v "${pair%:*}" >/dev/null || missing+=" ${pair#*:}"
done
[ -z "$missing" ] || fail "the cross compiler or the emulator is missing: install it (Debian, Ubuntu: apt-get install$missing)"

folder=$PWD/.cache/arm64
mkdir -p "$folder/bin"
# go run and go test start what they built for another processor with this program (go help run).
cat >"$folder/bin/go_linux_arm64_exec" <<'RUN'
#!/bin/sh
exec qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"
RUN
chmod +x "$folder/bin/go_linux_arm64_exec"

CGO_ENABLED=0 go build -buildvcs=false -o "$folder/gorbit-setup" ./cmd/gorbit-setup
export GOARCH=arm64 CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ AR=aarch64-linux-gnu-ar CGO_ENABLED=1 PATH=$folder/bin:$PATH
flags=$(CGO_CFLAGS=-O2 CGO_LDFLAGS='' "$folder/gorbit-setup" --folder "$folder/tensorflow" --print)
cat >"$folder/env" <<ENV
# Made by tools/arm64.sh: what the go command needs to build for 64-bit ARM.
export GOARCH=$GOARCH CC=$CC CXX=$CXX AR=$AR CGO_ENABLED=1 PATH="$folder/bin:\$PATH"
$flags
ENV
source "$folder/env"
for old in "$folder"/tensorflow/2.*; do # of an earlier loader: archives are made of the only one
  case $CGO_LDFLAGS in *"$old/"*) ;; *) rm -rf "$old" ;; esac
done
mkdir -p bin/arm64
GOFLAGS="${GOFLAGS:-} -buildvcs=false -tags=disable_grpc_modules" go build -trimpath \
  -ldflags "-X github.com/gorbit-ml/gorbit/internal/base/version.described=${COMMIT:-}" -o bin/arm64/ ./cmd/gorbit ./cmd/gorbit-predict
