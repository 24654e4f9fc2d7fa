"""Write events.golden with TensorFlow's own summary writer.

Run from anywhere, with TensorFlow 2.18:

    .venv/bin/python summary/testdata/generate.py

The Go tests write the same events and compare all but the wall times.
"""

import pathlib
import tempfile

import tensorflow as tf

GOLDEN = pathlib.Path(__file__).parent / "events.golden"


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        writer = tf.summary.create_file_writer(folder)
        with writer.as_default():
            for step, value in enumerate([0.5, -1.25, 1e-10, float("-inf"), float("nan"), 0.0]):
                tf.summary.scalar("loss/total", value, step=10 * step)
            tf.summary.text("params", "**größe**: 1\n", step=0)
            values = [((i * 37) % 101 - 50) / 7 for i in range(500)]
            tf.summary.histogram("weights", tf.constant(values, tf.float32), step=3)
            tf.summary.histogram("few", tf.constant(values, tf.float32), step=3, buckets=7)
            tf.summary.histogram("empty", tf.constant([], tf.float32), step=4, buckets=2)
            tf.summary.histogram("single", tf.constant([2.5, 2.5]), step=2**40, buckets=3)
            graph = tf.Graph()
            with graph.as_default():
                tf.constant(1.0, name="one")
            tf.summary.graph(graph)
        writer.close()
        (path,) = pathlib.Path(folder).iterdir()
        GOLDEN.write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
