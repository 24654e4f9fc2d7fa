"""Write JPEG images and what tf.io.decode_jpeg makes of them.

Run from anywhere, with TensorFlow 2.18 and Pillow:

    PYTHONPATH=FOLDER_OF_PILLOW .venv/bin/python internal/exec/tfjpeg/testdata/generate.py

  ../known.jpg, ../known.rgb   the image that the decoder is tried on, and its pixels
  images.json                  for each image its name, its file in base64, its shape, and its
                               pixels in base64; and files that are refused
"""

from __future__ import annotations

import base64
import io
import json
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

HERE = pathlib.Path(__file__).parent


def picture(height: int, width: int, noise: int) -> np.ndarray:
    """Return an image of waves and noise."""
    rng = np.random.default_rng(height * width)
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / (2 + c)) + np.cos(y / (3 + c)) for c in range(3)], -1)
    return ((waves * 60 + 128) + rng.integers(0, noise + 1, waves.shape)).astype(
        np.uint8
    )


def encoded(image: Image.Image, **options: object) -> bytes:
    """Return the file of an image."""
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def main() -> None:
    """Write the files."""
    known = encoded(Image.fromarray(picture(13, 22, 60)), quality=80, subsampling=2)
    (HERE.parent / "known.jpg").write_bytes(known)
    pixels = tf.io.decode_jpeg(known, channels=3).numpy()
    (HERE.parent / "known.rgb").write_bytes(pixels.tobytes())

    rgb = Image.fromarray(picture(35, 43, 40))
    files = {
        "4:4:4": (encoded(rgb, quality=90, subsampling=0), 3),
        "4:2:2": (encoded(rgb, quality=90, subsampling=1), 3),
        "4:2:0": (encoded(rgb, quality=75, subsampling=2), 3),
        "progressive": (encoded(rgb, quality=60, subsampling=2, progressive=True), 3),
        "restarts": (encoded(rgb, quality=75, restart_marker_blocks=2), 3),
        "CMYK": (encoded(rgb.convert("CMYK"), quality=90), 3),
        "gray": (encoded(rgb.convert("L"), quality=90), 1),
        "gray as RGB": (encoded(rgb.convert("L"), quality=90), 3),
        "one pixel": (encoded(Image.fromarray(picture(1, 1, 40)), quality=90), 3),
        "bytes between parts": (_between(encoded(rgb, quality=75, subsampling=2)), 3),
    }
    out = []
    for name, (file, channels) in files.items():
        pixels = tf.io.decode_jpeg(file, channels=channels).numpy()
        out.append(
            {
                "name": name,
                "file": base64.b64encode(file).decode(),
                "shape": list(pixels.shape),
                "pixels": base64.b64encode(pixels.tobytes()).decode(),
            }
        )
    (HERE / "images.json").write_text(json.dumps(out, indent=1) + "\n")


def _between(file: bytes) -> bytes:
    """Return a file with bytes of no meaning before its end, as some cameras write it."""
    return file[:-2] + bytes(9) + file[-2:]


if __name__ == "__main__":
    main()
