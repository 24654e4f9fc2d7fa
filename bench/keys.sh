#!/usr/bin/env bash
# Measures a training step of two workers on this machine without keys, with keys and by Unix sockets,
# in turns:
#
#   bench/keys.sh GORBIT GRAPH DATA ROUNDS
#
# Prints the median time of a step of each in milliseconds, and their ratios.
set -euo pipefail
gorbit=$1 graph=$2 data=$3 rounds=$4
work=$(mktemp -d)
workers=()
trap 'kill "${workers[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
mkdir -m 700 "$work/s"
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > "$work/token")

address() { # NAME I: what a worker listens on: any free port, or the name of a socket
  if [ "$1" = sockets ]; then echo "127.0.0.1:$2"; else echo 127.0.0.1:0; fi
}
start() { # NAME FLAG...: starts two workers; leaves their addresses in $work/NAME
  local name=$1 i
  shift
  for i in 1 2; do
    "$gorbit" worker --listen "$(address "$name" "$i")" --devices cpu:1 --threads 1 "$@" > "$work/$name.$i" 2>> "$work/log" &
    workers+=($!)
    until grep -qs listening "$work/$name.$i"; do sleep 0.1; done
  done
  awk '{ printf "%s%s", sep, $3; sep = "," }' "$work/$name.1" "$work/$name.2" > "$work/$name"
}
train() { # NAME RUN FLAG...: appends the time of a step, without that of saving
  local name=$1 run=$work/$2
  shift 2
  "$gorbit" train --graph "$graph" --data "$data" --run "$run" --workers "$(cat "$work/$name")" --batch-size 16 \
    --steps 12 --steps-per-loop 4 --eval-interval -2 --checkpoint-interval 1000 --progress off "$@" >> "$work/log" 2>&1
  sed -n 's/.*"phase":"\([a-z]*\)".*"seconds":\([0-9.]*\).*/\1 \2/p' "$run/processes.jsonl" |
    awk '{ took[$1] += $2 } END { print (took["train"] - took["save"]) / 12 * 1000 }' >> "$work/$name.times"
}
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

start open
start locked --token-file "$work/token"
start sockets --sockets "$work/s"
for round in $(seq "$rounds"); do
  train open "open-$round"
  train locked "locked-$round" --token-file "$work/token"
  train sockets "sockets-$round" --sockets "$work/s"
  cmp "$work/open-$round/metrics.jsonl" "$work/locked-$round/metrics.jsonl"
  cmp "$work/open-$round/metrics.jsonl" "$work/sockets-$round/metrics.jsonl"
done
awk -v open="$(median "$work/open.times")" -v locked="$(median "$work/locked.times")" -v sockets="$(median "$work/sockets.times")" \
  'BEGIN { printf "open %.0f ms, locked %.0f ms, sockets %.0f ms, locked/open %.3f, sockets/open %.3f\n", open, locked, sockets, locked / open, sockets / open }'
