"""Write images and what TensorFlow decodes of them.

Run from anywhere, with TensorFlow 2.18:

    .venv/bin/python dataset/internal/columns/testdata/generate.py

  images.json   for each image its format, the channels that were asked for, the encoded bytes and
                the values (height, width, channels), both in base64
"""

import base64
import json
import pathlib

import numpy as np
import tensorflow as tf

HERE = pathlib.Path(__file__).parent
CMYK = (
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBg"
    "gLCAkKCgoKCgYICwwLCgwJCgoK/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABQAAQAAAAAAAAAAAAAAAAAAAAj/xAAh"
    "EAACAAMJAAAAAAAAAAAAAAAACCU0QgkZRVFSZoKj4f/aAA4EQwBNAFkASwAAPwByWtuJ8xWX2u7u/wBBmpKSSsIyoF"
    "Y7btzcX1Vn/9k="
)
"""A JPEG image of four inks, as Pillow writes it, which TensorFlow only reads."""


def pictures() -> dict[str, np.ndarray]:
    """Return images of one to four channels, of 8 and of 16 bits."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[0:12, 0:17]
    smooth = np.stack([x * 12, y * 16, 255 - x * 6 - y * 8], -1).astype(np.uint8)
    deep = rng.integers(0, 65536, (5, 4, 3)).astype(np.uint16)
    return {
        "gray": rng.integers(0, 256, (5, 7, 1)).astype(np.uint8),
        "rgb": rng.integers(0, 256, (5, 7, 3)).astype(np.uint8),
        "rgba": rng.integers(0, 256, (5, 7, 4)).astype(np.uint8),
        "gray16": deep[..., :1],
        "rgb16": deep,
        "smooth": smooth,
        "shades": np.repeat(smooth[..., :1], 3, -1),
    }


def main() -> None:
    """Write the file."""
    of = pictures()
    png = {name: tf.io.encode_png(of[name]) for name in of}
    jpeg = {
        "smooth": tf.io.encode_jpeg(of["smooth"], quality=95, chroma_downsampling=False),
        "progressive": tf.io.encode_jpeg(of["smooth"], quality=95, progressive=True),
        "cmyk": tf.constant(base64.b64decode(CMYK)),
        "one": tf.io.encode_jpeg(of["smooth"][..., :1], quality=95),
    }
    cases = [("PNG", n, png[n], c) for n, c in [
        ("gray", 1), ("gray", 3), ("rgb", 3), ("rgba", 4), ("rgba", 3), ("gray16", 1), ("rgb16", 3), ("shades", 3),
    ]]  # fmt: skip
    cases += [
        ("JPEG", n, jpeg[n], c)
        for n, c in [("smooth", 3), ("progressive", 3), ("cmyk", 3), ("one", 1), ("one", 3)]
    ]
    out = []
    for form, name, data, channels in cases:
        decode = tf.io.decode_png if form == "PNG" else tf.io.decode_jpeg
        values = decode(data, channels=channels).numpy()
        out.append(
            {
                "format": form,
                "name": name,
                "shape": list(values.shape),
                "data": base64.b64encode(data.numpy()).decode(),
                "values": base64.b64encode(values.tobytes()).decode(),
            }
        )
    (HERE / "images.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
