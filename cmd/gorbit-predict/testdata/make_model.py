"""Makes a model to serve as gorbit export lays it out, with TensorFlow alone, and its answers.

Usage: make_model.py FOLDER. Writes FOLDER/model and FOLDER/golden.json: the probabilities of
"a b c", and of the pair "d e", "f g".
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from gorbit_export import classifier, config

out = pathlib.Path(sys.argv[1])
words = "[PAD] [UNK] [CLS] [SEP] a b c d e f g h".split()
size = config.BertConfig(32, 2, 4, 64, vocab_size=len(words), max_position_embeddings=16)
task = classifier.Classification(size, 3, "first")
rng = np.random.default_rng(1)
for variable in task.model.variables:
    variable.assign(rng.normal(0, 0.5, variable.shape).astype(np.float32))

specs, serve = task.serving()
module = tf.Module()
module.model = task.model
signature = tf.function(serve, autograph=False).get_concrete_function(*specs)
tf.saved_model.save(module, str(out / "model"), signatures={"serving_default": signature})

saved = saved_model_pb2.SavedModel()
saved.ParseFromString((out / "model" / "saved_model.pb").read_bytes())
tensors = saved.meta_graphs[0].signature_def["serving_default"]
description = {
    "format": "gorbit-serving",
    "version": 1,
    "task": "classification",
    "labels": ["bad", "fair", "good"],
    "vocab": "vocab.txt",
    "lowercase": True,
    "max_length": 16,
    "inputs": {name: info.name for name, info in tensors.inputs.items()},
    "outputs": {name: info.name for name, info in tensors.outputs.items()},
    "model": task.description(),
}
assets = out / "model" / "assets"
assets.mkdir(exist_ok=True)
(assets / "vocab.txt").write_text("\n".join(words) + "\n")
(assets / "labels.txt").write_text("\n".join(description["labels"]) + "\n")
(assets / "gorbit-serving.json").write_text(json.dumps(description))

answers = []
for ids, types in (
    ([2, 4, 5, 6, 3], [0, 0, 0, 0, 0]),
    ([2, 7, 8, 3, 9, 10, 3], [0, 0, 0, 0, 1, 1, 1]),
):
    length = len(ids)
    answer = task.predict(
        {
            "input_ids": tf.constant([ids]),
            "type_ids": tf.constant([types]),
            "sequence_ids": tf.ones([1, length], tf.int32),
            "position_ids": tf.range(length)[None, :],
            "cls_positions": tf.constant([0]),
        }
    )
    answers.append(answer["probabilities"].numpy()[0].tolist())
(out / "golden.json").write_text(json.dumps(answers))
