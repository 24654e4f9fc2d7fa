"""Makes what served_test.go needs: an export, a checkpoint of other values, and answers.

Usage: golden.py FOLDER. Writes FOLDER/graph (the export of a small model), FOLDER/ckpt
(a tf.train.Checkpoint of it with random variables), FOLDER/vocab.txt and FOLDER/golden.json
(ids of two examples, and what the export's predict function makes of them).
"""

import json
import sys

import numpy as np
import tensorflow as tf

from gorbit_export import classifier, config, export, optimizers

out = sys.argv[1]
words = "[PAD] [UNK] [CLS] [SEP] a b c d e f g h".split()
with open(f"{out}/vocab.txt", "w") as f:
    f.write("\n".join(words) + "\n")
size = config.BertConfig(32, 2, 4, 64, vocab_size=len(words), max_position_embeddings=16)
task = classifier.Classification(size, 3, "first")
module = export.write(task, optimizers.AdamW(), f"{out}/graph")

rng = np.random.default_rng(1)
for variable in module.variables_by_path.values():
    variable.assign(rng.normal(0, 0.5, variable.shape).astype(np.float32))
tf.train.Checkpoint(root=module).write(f"{out}/ckpt")

# Two examples, the second shorter: one row each, padded as the signature takes them.
ids = np.array([[2, 4, 5, 6, 3, 7, 8, 3], [2, 9, 10, 3, 0, 0, 0, 0]], np.int32)
types = np.array([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8], np.int32)
mask = (ids != 0).astype(np.int32)
answers = module.predict(
    input_ids=tf.constant(ids),
    type_ids=tf.constant(types),
    sequence_ids=tf.constant(mask),
    position_ids=tf.constant(np.tile(np.arange(8, dtype=np.int32), (2, 1)) * mask),
    cls_positions=tf.constant([0, 8]),
)
with open(f"{out}/golden.json", "w") as f:
    json.dump(
        {
            "input_ids": ids.tolist(),
            "token_type_ids": types.tolist(),
            "attention_mask": mask.tolist(),
            "probabilities": answers["probabilities"].numpy().tolist(),
        },
        f,
    )
