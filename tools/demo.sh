#!/usr/bin/env bash
# From nothing to a served model, with real weights and real text: fetches the
# MiniLM BERT and movie reviews with human sentiment scores, fine-tunes for one
# epoch, evaluates, exports and predicts. Prints each command before running it.
# The results are in demo/, which is replaced. `make demo` builds what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

# say prints a command as you would type it.
say() {
  local word line='$'
  for word in "$@"; do
    case $word in
    *[!A-Za-z0-9_./,:=@%+-]* | '') word=\"${word//\"/\\\"}\" ;;
    esac
    line+=" $word"
  done
  printf '\n%s\n' "$line"
}

run() {
  say "$@"
  "$@"
}

run tools/fetch_demo.sh
run rm -rf demo

# A row is an id, the mean of people's scores from -4 to 4, and the text. A tenth
# of the rows, selected by a hash of their ids, is kept for evaluation.
run bin/gorbit convert --vocab .cache/minilm/vocab.txt --train .cache/reviews/reviews.txt --no-header \
  --text-column 3 --label-column 2 --label-threshold 0 --labels negative,positive \
  --split-by-hash 1 --out demo/data
run .venv/bin/python -m gorbit_export bert-classifier --config minilm --pooling mean --out demo/graph
run bin/gorbit train --graph demo/graph --data demo/data --init .cache/minilm/model.safetensors \
  --run demo/run --epochs 1 --learning-rate 1e-4
run bin/gorbit evaluate --run demo/run
run bin/gorbit export --run demo/run --out demo/served

texts=(
  --text "A gripping, beautifully shot film that stays with you."
  --text "Badly written, tedious, and far too long."
  --text "Not the masterpiece it wants to be, but great fun all the same."
)
run bin/gorbit predict --run demo/run "${texts[@]}"
run bin/gorbit-predict --model demo/served "${texts[@]}"
