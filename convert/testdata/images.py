"""Writes images in folders by class, and the same in Parquet files, with Hugging Face's datasets.

CONTRIBUTING.md has the command.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

HERE = Path(__file__).parent / "images"
CLASSES = ("10", "9", "cat", "dog")
SIZE = (4, 3)


def draw(path: Path, number: int) -> None:
    """Draws an image of its own for each number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", SIZE)
    for y in range(SIZE[1]):
        for x in range(SIZE[0]):
            image.putpixel(
                (x, y), (40 * x + number, 60 * y + 2 * number, 200 - 9 * number)
            )
    image.save(path)


def write_plain(rows: pa.Table, labels: list[object], name: str) -> None:
    """Writes a table of bytes, as other programs have images."""
    image = rows.column("image").combine_chunks()
    table = pa.table(
        {"id": range(len(rows)), "photo": image.field("bytes"), "kind": labels}
    )
    pq.write_table(table, HERE / f"{name}.parquet")


def main() -> None:
    """Writes the files."""
    shutil.rmtree(HERE, ignore_errors=True)
    number = 0
    for split, each in (("train", 3), ("test", 1)):
        for name in CLASSES:
            for i in range(each):
                ending = "jpg" if name == "dog" else "png"
                draw(HERE / split / name / f"{i}.{ending}", number)
                number += 1
    with tempfile.TemporaryDirectory() as cache:
        folders = datasets.load_dataset(
            "imagefolder", data_dir=str(HERE), cache_dir=cache
        )
        for split, rows in folders.items():
            # As push_to_hub does: the bytes in place of the paths.
            whole = rows.with_format("arrow").map(
                datasets.table.embed_table_storage, batched=True
            )
            whole.to_parquet(HERE / f"{split}-00000-of-00001.parquet", batch_size=5)
        names = folders["train"].features["label"].names
    test = pq.read_table(HERE / "test-00000-of-00001.parquet")
    hidden = test.set_column(1, test.schema.field("label"), pa.array([-1] * len(test)))
    pq.write_table(hidden, HERE / "hidden.parquet")
    train = pq.read_table(HERE / "train-00000-of-00001.parquet")
    labels = train.column("label").to_pylist()
    write_plain(train, [names[i] for i in labels], "texts")
    write_plain(train, [3 * i for i in labels], "numbers")
    image = train.column("image")[:1].to_pylist()
    image += [
        None,
        {"bytes": None, "path": "cat/1.png"},
        {"bytes": b"GIF89a", "path": None},
    ]
    image += [{"bytes": b"", "path": None}]
    bad = {"image": image, "label": [0, 1, 0, 1, 0]}
    pq.write_table(pa.table(bad, train.schema), HERE / "bad.parquet")


if __name__ == "__main__":
    main()
