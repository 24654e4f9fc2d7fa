"""Writes Parquet files and the same rows as JSON lines, with pyarrow.

CONTRIBUTING.md has the command.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent / "parquet"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("large", pa.large_string()),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
        pa.field("double", pa.float64()),
        pa.field("float", pa.float32()),
        pa.field("flag", pa.bool_()),
        pa.field("byte", pa.uint8()),
        pa.field("tiny", pa.int8()),
        pa.field("whole", pa.uint64()),
        pa.field("unsigned", pa.uint32()),
        pa.field("nothing", pa.null()),
        pa.field("choices", pa.list_(pa.string())),
        pa.field("sizes", pa.list_(pa.float32())),
        pa.field("tokens", pa.large_list(pa.int32())),
        pa.field("fixed", pa.list_(pa.int16(), 2)),
        pa.field("grid", pa.list_(pa.list_(pa.int64()))),
        pa.field(
            "answers",
            pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))]),
        ),
        pa.field(
            "turns",
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
        ),
    ]
)


def row(i: int) -> dict[str, object]:
    """Returns a row: values of each kind, with nulls and empty lists at different places."""
    return {
        "id": i,
        "label": None if i % 11 == 3 else i % 3,
        "text": None
        if i % 7 == 2
        else f'row {i}: "quoted", tab\t, line\n, \u00e9\u4e16\U0001f600' * (i % 3),
        "large": "x" * (i % 5),
        "kind": None if i % 9 == 1 else ["red", "green", "blue"][i % 3],
        "double": None
        if i % 5 == 4
        else [0.1, 1e300, -2.0, 1e-7, 123456789.0, 1e16, 0.0, 1 / 3][i % 8],
        "float": None if i % 6 == 5 else i / 4,
        "flag": None if i % 4 == 3 else i % 2 == 0,
        "byte": 255 - i,
        "tiny": i - 50,
        "whole": 2**64 - 1 - i,
        "unsigned": 2**32 - 1 - i,
        "nothing": None,
        "choices": None if i % 8 == 5 else [f"choice {k}" for k in range(i % 4)],
        "sizes": [k / 2 for k in range(i % 40)],
        "tokens": None if i % 10 == 9 else list(range(i % 6)),
        "fixed": [i, -i],
        "grid": None if i % 13 == 12 else [[k] * k for k in range(i % 4)],
        "answers": None if i % 6 == 1 else {"text": ["a"] * (i % 3), "answer_start": [i] * (i % 3)},
        "turns": [
            {"role": "user", "content": None if k == 2 else f"turn {k}"} for k in range(i % 4)
        ],
    }


def main() -> None:
    """Writes the files."""
    HERE.mkdir(exist_ok=True)
    table = pa.Table.from_pylist([row(i) for i in range(60)], SCHEMA)
    with (HERE / "rows.jsonl").open("w", encoding="utf-8") as out:
        for values in table.to_pylist():
            out.write(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n")
    small = {"row_group_size": 25, "data_page_size": 64, "write_batch_size": 4}
    for name, settings in {
        "none": {"compression": "none", "use_dictionary": False},
        "snappy": {"compression": "snappy"},
        "zstd": {"compression": "zstd", "data_page_version": "2.0"},
        "gzip": {"compression": "gzip", "use_compliant_nested_type": False},
        "brotli": {"compression": "brotli"},
        "lz4": {"compression": "lz4"},
        "checked": {
            "compression": "snappy",
            "write_page_checksum": True,
            "use_dictionary": ["kind"],
        },
        "delta": {
            "compression": "none",
            "use_dictionary": False,
            "version": "2.6",
            "column_encoding": {
                "id": "DELTA_BINARY_PACKED",
                "text": "DELTA_BYTE_ARRAY",
                "large": "DELTA_LENGTH_BYTE_ARRAY",
                "double": "BYTE_STREAM_SPLIT",
            },
        },
    }.items():
        pq.write_table(table, HERE / f"{name}.parquet", **small, **settings)
    # What is refused.
    other = pa.table(
        {
            "day": pa.array([1], pa.date32()),
            "at": pa.array([1], pa.timestamp("ms")),
            "price": pa.array([1], pa.decimal128(5, 2)),
            "half": pa.array([1], pa.float16()),
            "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "image": pa.array(
                [{"bytes": b"\x89PNG\r\n", "path": None}],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
            "real": pa.array([float("nan")]),
        }
    )
    pq.write_table(other, HERE / "other.parquet")


if __name__ == "__main__":
    main()
