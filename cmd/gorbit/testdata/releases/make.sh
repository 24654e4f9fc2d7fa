#!/usr/bin/env bash
# Makes the folder of a release: files of each kind that later releases must open. Run it on the commit
# of the release, and never again for it:
#
#     make build && cmd/gorbit/testdata/releases/make.sh 0.1.0
#     go test ./cmd/gorbit -run TestReleases -record
#
# The second command records what the release computes with them, in numbers.json.
set -euo pipefail
[ $# = 1 ] || { echo "usage: make.sh VERSION" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../../../.." && pwd)
out=$root/cmd/gorbit/testdata/releases/$1
[ ! -e "$out" ] || { echo "make.sh: $out is there; expected a release that has no folder yet" >&2; exit 1; }
export PATH=$root/bin:$PATH TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES=-1 PYTHONPATH=$root/tools
# Files name the folder that they were made in.
work=$(mktemp -d /tmp/gorbit.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Texts whose label is that of one word.
awk 'BEGIN {
  srand(7); split("good great fine lovely", good); split("bad awful dull poor", bad)
  split("the a film plot cast story was is and it with some music", fill)
  print "label\ttext"
  for (i = 0; i < 120; i++) {
    n = 3 + int(rand() * 7); at = int(rand() * n); text = ""
    for (j = 0; j < n; j++) {
      word = j != at ? fill[1 + int(rand() * 13)] : i % 2 ? bad[1 + int(rand() * 4)] : good[1 + int(rand() * 4)]
      text = text (j ? " " : "") word
    }
    print (i % 2 ? "bad" : "good") "\t" text
  }
}' >texts.tsv
cut -f 2 texts.tsv | tail -n +2 >lines.txt
gorbit tokenizer train --type wordpiece --vocab-size 60 --out tokenizer lines.txt
gorbit convert --tokenizer tokenizer --train texts.tsv --split-by-hash text --text-column text --label-column label \
  --max-length 16 --out data
size=$("$root/.venv/bin/python" -c 'import json; print(len(json.load(open("tokenizer/tokenizer.json"))["model"]["vocab"]))')
cat >config.json <<JSON
{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
 "vocab_size": $size, "max_position_embeddings": 16}
JSON
"$root/.venv/bin/python" -m gorbit_export bert --task classification --config config.json --data data --out export
gorbit train --graph export --data data --run run --steps 12 --batch-size 8 --learning-rate 0.02 --schedule constant --seed 5
gorbit export --run run --out served
openssl genpkey -algorithm ed25519 -out key.pem
openssl pkey -in key.pem -pubout -out public.pem
gorbit verify run --write --key key.pem
rm key.pem lines.txt config.json run/.lock
gorbit verify run --key public.pem
chmod 755 "$work"
mv "$work" "$out"
