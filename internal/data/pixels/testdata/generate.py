"""Write images and what TensorFlow and Keras scale them to.

Run from anywhere, with TensorFlow 2.18 and Keras 3:

    .venv/bin/python internal/data/pixels/testdata/generate.py

  scaled.json   for each image the way of scaling, its shape, the new size, its values in base64, and
                the new values
"""

import base64
import json
import pathlib

import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.utils.image_utils import smart_resize

HERE = pathlib.Path(__file__).parent


def main() -> None:
    """Write the file."""
    rng = np.random.default_rng(1)
    out = []
    for shape, size in (
        ((7, 5, 3), (4, 6)),
        ((3, 4, 1), (8, 7)),
        ((13, 9, 4), (3, 2)),
        ((6, 17, 3), (5, 5)),
        ((1, 2, 1), (2, 3)),
    ):
        image = rng.integers(0, 256, shape).astype(np.uint8)
        for resize in ("bilinear", "antialias", "nearest"):
            method = "nearest" if resize == "nearest" else "bilinear"
            scaled = tf.image.resize(
                image, size, method, antialias=resize == "antialias"
            )
            cases = [(False, scaled)]
            if resize != "antialias":  # which Keras does not have
                cut = smart_resize(
                    tf.constant(image), size, method, backend_module=backend
                )
                cases.append((True, cut))
            for crop, values in cases:
                out.append(
                    {
                        "resize": resize,
                        "crop": crop,
                        "shape": shape,
                        "size": size,
                        "from": base64.b64encode(image.tobytes()).decode(),
                        "to": [round(float(v), 3) for v in np.ravel(values)],
                    }
                )
    (HERE / "scaled.json").write_text(
        json.dumps(out, indent=None).replace("}, {", "},\n{") + "\n"
    )


if __name__ == "__main__":
    main()
