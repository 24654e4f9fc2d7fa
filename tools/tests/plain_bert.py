"""A plain BERT classifier: one example per row, ordinary ops, automatic gradients.

It shares only the variables with the exporter's model. The tests compare the
exported graph with it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from gorbit_export.config import BertConfig


def _dense(x: tf.Tensor, layer: tf.Module) -> tf.Tensor:
    return tf.tensordot(x, layer.kernel, 1) + layer.bias


def _norm(x: tf.Tensor, layer: tf.Module, epsilon: float) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, layer.bias, layer.scale, epsilon)


def hidden(config: BertConfig, encoder: tf.Module, ids: list, types: list) -> tf.Tensor:
    """Encodes ONE sequence: float32 [S, H]."""
    e, eps = encoder.embeddings, config.layer_norm_eps
    x = tf.gather(e.word.table, ids) + tf.gather(e.type.table, types)
    x = _norm(x + e.position.table[: len(ids)], e.norm, eps)
    heads = config.num_attention_heads

    def split(y: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.reshape(y, [len(ids), heads, -1]), [1, 0, 2])

    for layer in encoder.layers:
        a, f = layer.attention, layer.feed_forward
        q, k, v = (split(_dense(x, d)) for d in (a.query, a.key, a.value))
        p = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / np.sqrt(config.head_size))
        y = tf.reshape(tf.transpose(tf.matmul(p, v), [1, 0, 2]), [len(ids), -1])
        x = _norm(x + _dense(y, a.output), a.norm, eps)
        y = tf.nn.gelu(_dense(x, f.intermediate), approximate=False)
        x = _norm(x + _dense(y, f.output), f.norm, eps)
    return x


def logits(config: BertConfig, model: tf.Module, pooling: str, ids: list, types: list) -> tf.Tensor:
    """Classifies ONE sequence: float32 [C]."""
    x = hidden(config, model.encoder, ids, types)
    if pooling == "first":
        x = tf.tanh(_dense(x[:1], model.pooler))
    else:
        x = tf.reduce_mean(x, 0, keepdims=True)
    return _dense(x, model.classifier)[0]
