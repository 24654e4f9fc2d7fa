"""Makes served models that do more than answer.

Usage: make_unsafe.py MODEL OUT. MODEL is one that make_model.py made. Each model OUT/NAME/model has
one operation that reaches a file, and writes to OUT/NAME/written, or reads OUT/secret.
"""

import json
import pathlib
import shutil
import sys

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

good, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
secret = out / "secret"
secret.write_text("secret")


def write(path):
    tf.io.write_file(path, "written")


def save(path):
    saved = tf.raw_ops.SaveV2(
        prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
    )
    with tf.control_dependencies([saved]):
        return tf.constant(0)


def print_to(path):
    tf.print("written", output_stream="file://" + path)


def read(_):
    return tf.strings.length(tf.io.read_file(str(secret)))


@tf.function(autograph=False)
def inner(path):
    @tf.function(autograph=False)
    def innermost():
        write(path)
        return 1

    return tf.cond(tf.random.uniform([]) < 2.0, innermost, lambda: 0)


def nested(path):
    return tf.while_loop(
        lambda i: i < 1, lambda i: [i + inner(path)], [tf.constant(0)], shape_invariants=None
    )[0]


def export(name, act):
    """A model whose signature does what act does."""
    folder = out / name
    path = str(folder / "written")

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(tf.zeros([3]))

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None], tf.int32, n)
                for n in ("input_ids", "attention_mask", "token_type_ids")
            ]
        )
        def serve(self, input_ids, attention_mask, token_type_ids):
            done = act(path)
            logits = tf.zeros([tf.shape(input_ids)[0], 3]) + self.table
            if done is not None:
                logits += 0.0 * tf.cast(done, tf.float32)
            return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    module = Module()
    tf.saved_model.save(
        module, str(folder / "model"), signatures={"serving_default": module.serve}
    )
    describe(folder / "model")


def describe(model):
    """Makes a SavedModel one that gorbit-predict takes."""
    shutil.copytree(good / "assets", model / "assets", dirs_exist_ok=True)
    tensors = load(model).meta_graphs[0].signature_def["serving_default"]
    file = model / "assets" / "gorbit-serving.json"
    description = json.loads(file.read_text())
    description["inputs"] = {n: info.name for n, info in tensors.inputs.items()}
    description["outputs"] = {n: info.name for n, info in tensors.outputs.items()}
    description["model"] = {}
    file.write_text(json.dumps(description))


def load(model):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((model / "saved_model.pb").read_bytes())
    return saved


def loading(name, change):
    """The good model, but with more nodes that run while it is loaded."""
    model = out / name / "model"
    shutil.copytree(good, model)
    saved = load(model)
    with tf.Graph().as_default() as graph:
        write(str(out / name / "written"))
    for node in graph.as_graph_def().node:
        copy = saved.meta_graphs[0].graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = "evil/" + node.name
        copy.input[:] = ["evil/" + i for i in node.input]
    change(saved.meta_graphs[0])
    (model / "saved_model.pb").write_bytes(saved.SerializeToString())


def main_op(meta):
    del meta.signature_def["__saved_model_init_op"]
    meta.collection_def["saved_model_main_op"].node_list.value[:] = ["evil/WriteFile"]


def init_op(meta):
    tensors = meta.signature_def["__saved_model_init_op"].outputs
    tensors["__saved_model_init_op"].name = "evil/WriteFile"


def control(meta):
    for node in meta.graph_def.node:
        if node.name == meta.saver_def.restore_op_name:
            node.input.append("^evil/WriteFile")


export("signature", write)
export("saves", save)
export("prints", print_to)
export("reads", read)
export("nested", nested)
loading("main-op", main_op)
loading("init-op", init_op)
loading("restore", control)
