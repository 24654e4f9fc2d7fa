#!/bin/sh
# Runs a command with TF_CONFIG set for one process of a cluster: the INDEX-th of the hosts, counted
# from 0, all of which listen on PORT. gorbit train then trains on all of them; the first is the
# chief.
#
# Usage: with-tf-config.sh INDEX PORT HOST... -- COMMAND [ARGUMENT...]
set -eu

fail() { echo "with-tf-config: $*" >&2; exit 2; }

[ $# -ge 2 ] || fail "expected INDEX PORT HOST... -- COMMAND [ARGUMENT...]"
index=$1 port=$2
shift 2
case "$index" in '' | *[!0-9]*) fail "INDEX is \"$index\"; expected a number from 0 on" ;; esac
case "$port" in '' | *[!0-9]*) fail "PORT is \"$port\"; expected a number from 1 to 65535" ;; esac
workers='' count=0
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case "$1" in '' | *[!A-Za-z0-9.-]*) fail "HOST is \"$1\"; expected the name or IPv4 address of a machine" ;; esac
  workers="$workers${workers:+, }\"$1:$port\"" count=$((count + 1))
  shift
done
[ "${1:-}" = -- ] && [ $# -ge 2 ] || fail "expected \"-- COMMAND\" behind the hosts"
shift
[ "$index" -lt "$count" ] || fail "INDEX is $index of $count hosts; expected one below their number"

TF_CONFIG="{\"cluster\": {\"worker\": [$workers]}, \"task\": {\"type\": \"worker\", \"index\": $index}}"
export TF_CONFIG
exec "$@"
