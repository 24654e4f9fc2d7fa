"""Loads a served model as a TensorFlow user would and prints its answers as JSON.

Usage: load.py MODEL GOLDEN, where GOLDEN is golden.py's golden.json.
"""

import json
import sys

import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
with open(sys.argv[2]) as f:
    golden = json.load(f)
names = ("input_ids", "attention_mask", "token_type_ids")
answers = model.signatures["serving_default"](**{k: tf.constant(golden[k]) for k in names})
print(json.dumps(answers["probabilities"].numpy().tolist()))
