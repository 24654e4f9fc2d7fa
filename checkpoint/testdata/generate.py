"""Writes the golden checkpoints of this folder with TensorFlow itself.

    python checkpoint/testdata/generate.py

expected.json lists, per checkpoint, the tensors as TensorFlow reads them back.
"""

import base64
import json
import os
import shutil

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
expected = {}


def folder(name: str) -> str:
    """Makes an empty folder beside this script."""
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def describe(value: object) -> dict:
    """The type, shape and little-endian bytes of a tensor; strings one by one."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype == object or array.dtype.kind == "S":
        return {
            "dtype": "string",
            "shape": list(array.shape),
            "strings": [base64.b64encode(s).decode() for s in array.ravel().tolist()],
        }
    return {
        "dtype": tf.as_dtype(array.dtype).name,
        "shape": list(array.shape),
        "bytes": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }


def record(name: str, prefix: str, paths: dict | None = None) -> None:
    """Notes every entry of a checkpoint, and which path leads to which value."""
    reader = tf.train.load_checkpoint(prefix)
    keys = sorted(
        k for k in reader.get_variable_to_shape_map() if not k.startswith("_CHECKPOINTABLE")
    )
    expected[name] = {
        "entries": {k: describe(reader.get_tensor(k)) for k in keys},
        "paths": {p: describe(v.numpy()) for p, v in (paths or {}).items()},
    }


def module(**children: object) -> tf.Module:
    """Makes an object with the given attributes."""
    m = tf.Module()
    for name, value in children.items():
        setattr(m, name, value)
    return m


def graph() -> None:
    """Lists, dictionaries with odd keys, shared nodes, a cycle, slots."""
    kernel = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
    bias = tf.Variable([0.5, -1.5, 2.5])
    first = module(kernel=kernel, bias=bias)
    second = module(
        kernel=tf.Variable([[7.0]]), half=tf.Variable(tf.constant([1.5, -2.0], tf.float16))
    )
    model = module(
        layers=[first, second],
        odd={"a.b": tf.Variable(3), "c/d": tf.Variable([4, 5], dtype=tf.int64)},
    )
    model.me = model  # a cycle
    text = tf.Variable("caf\u00e9 \x00 bytes")
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in (kernel, bias)])
    checkpoint = tf.train.Checkpoint(model=model, tied=first, optimizer=optimizer, text=text)
    manager = tf.train.CheckpointManager(checkpoint, folder("graph"), max_to_keep=2)
    manager.save()
    prefix = manager.save()
    assert prefix.endswith("ckpt-2")
    os.remove(os.path.join(HERE, "graph", "ckpt-1.index"))
    os.remove(os.path.join(HERE, "graph", "ckpt-1.data-00000-of-00001"))
    record(
        "graph/ckpt-2",
        prefix,
        {
            "model/layers/0/kernel": kernel,
            "tied/kernel": kernel,
            "model/me/me/layers/0/kernel": kernel,
            "model/layers/1/half": second.half,
            "model/odd/a.b": model.odd["a.b"],
            "model/me/odd/c/d": model.odd["c/d"],
            "optimizer/m/model/layers/0/kernel": optimizer.get_slot(kernel, "m"),
            "optimizer/v/tied/bias": optimizer.get_slot(bias, "v"),
            "optimizer/v/model/me/layers/0/bias": optimizer.get_slot(bias, "v"),
            "text": text,
            "save_counter": checkpoint.save_counter,
        },
    )


def root() -> None:
    """Checkpoint(root=...) attaches the root to itself."""
    net = module(
        dense=module(kernel=tf.Variable([[1.0, 2.0]])), step=tf.Variable(7, dtype=tf.int64)
    )
    prefix = tf.train.Checkpoint(root=net).save(os.path.join(folder("root"), "ckpt"))
    record(
        "root/ckpt-1",
        prefix,
        {
            "dense/kernel": net.dense.kernel,
            "root/root/dense/kernel": net.dense.kernel,
            "step": net.step,
        },
    )


def keras() -> None:
    """A Keras model, whose optimizer reaches its variables by shorter paths than the model."""
    net = tf.keras.Sequential(
        [tf.keras.layers.Dense(2, name="one"), tf.keras.layers.Dense(1, name="two")]
    )
    net.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse")
    net.fit(np.ones([4, 3], np.float32), np.ones([4, 1], np.float32), verbose=0)
    prefix = tf.train.Checkpoint(model=net, optimizer=net.optimizer).save(
        os.path.join(folder("keras"), "ckpt")
    )
    record(
        "keras/ckpt-1",
        prefix,
        {
            "optimizer/_trainable_variables/0": net.layers[0].kernel.value,
            "model/_functional/_operations/1/_kernel": net.layers[0].kernel.value,
            "model/optimizer/_momentums/0": net.optimizer._momentums[0].value,
            "optimizer/_variables/0": net.optimizer.iterations.value,
        },
    )


TYPES = [
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.bool,
    tf.complex64,
    tf.complex128,
]


def plain() -> None:
    """Names without an object graph, every type, odd shapes, long strings."""
    tensors = {"type/" + t.name: tf.cast(tf.constant([[0, 1, 1], [1, 0, 1]]), t) for t in TYPES}
    tensors["scalar"] = tf.constant(3.25)
    tensors["empty"] = tf.zeros([2, 0, 3])
    tensors["strings/one"] = tf.constant(b"x" * 300)
    tensors["strings/many"] = tf.constant([[b"", b"a\x00b"], [b"\xff\xfe", b"y" * 200]])
    tensors["strings/none"] = tf.constant([], tf.string, shape=[0])
    prefix = os.path.join(folder("plain"), "model.ckpt")
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(tensors.values()),
    )
    record("plain/model.ckpt", prefix)


def shards() -> None:
    """Three data files under one index, as several hosts write them."""
    path = folder("shards")
    parts = []
    for i in range(3):
        part = os.path.join(path, f"part-{i}")
        tf.raw_ops.SaveV2(
            prefix=part,
            tensor_names=[f"w{i}", f"s{i}"],
            shape_and_slices=["", ""],
            tensors=[tf.range(5.0) + i, tf.constant([f"host {i}"])],
        )
        parts.append(part)
    prefix = os.path.join(path, "model")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
    record("shards/model", prefix)


def slices() -> None:
    """A tensor saved in two parts, as partitioned variables are."""
    whole = np.arange(16, dtype=np.float32).reshape(4, 4)
    prefix = os.path.join(folder("slices"), "model")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["w/part", "w/part", "b"],
        shape_and_slices=["4 4 0,3:-", "4 4 3,1:-", ""],
        tensors=[whole[:3], whole[3:], tf.constant([1, 2])],
    )
    record("slices/model", prefix)


def variants() -> None:
    """A tensor of C++ objects, which can be verified and not read."""
    prefix = os.path.join(folder("variants"), "model")
    handle = tf.raw_ops.TensorListFromTensor(tensor=tf.constant([[1.0], [2.0]]), element_shape=[1])
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["list", "x"],
        shape_and_slices=["", ""],
        tensors=[handle, tf.constant(1.0)],
    )


def google() -> None:
    """The index of a BERT as Google's releases have it, by TensorFlow 1's saver; no data file."""
    h, inner = 8, 32
    shapes = {f"embeddings/{n}_embeddings": [k, h] for n, k in (("word", 40), ("position", 16))}
    shapes["embeddings/token_type_embeddings"] = [2, h]
    norms = ["embeddings/LayerNorm"]
    for i in range(2):
        layer = f"encoder/layer_{i}"
        dense = {f"attention/self/{n}": [h, h] for n in ("query", "key", "value")}
        dense |= {"attention/output/dense": [h, h]}
        dense |= {"intermediate/dense": [h, inner], "output/dense": [inner, h]}
        for name, shape in dense.items():
            shapes |= {f"{layer}/{name}/kernel": shape, f"{layer}/{name}/bias": shape[1:]}
        norms += [f"{layer}/attention/output/LayerNorm", f"{layer}/output/LayerNorm"]
    shapes |= {f"{name}/{part}": [h] for name in norms for part in ("beta", "gamma")}
    shapes |= {"pooler/dense/kernel": [h, h], "pooler/dense/bias": [h]}
    prefix = os.path.join(folder("google"), "bert_model.ckpt")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in shapes.items():
            tf.compat.v1.get_variable("bert/" + name, shape)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, prefix, write_meta_graph=False, write_state=False)
    os.remove(prefix + ".data-00000-of-00001")


if __name__ == "__main__":
    tf.random.set_seed(1)
    for make in (graph, root, keras, plain, shards, slices, variants, google):
        make()
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1, sort_keys=True)
        f.write("\n")
