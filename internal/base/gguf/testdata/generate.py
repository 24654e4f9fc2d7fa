"""Writes types.gguf and types.f32 with the gguf package of llama.cpp (pip install gguf).

types.gguf has two rows of every type that is read, and a value of each kind in its metadata;
types.f32 the numbers that gguf.dequantize makes of them, as float32, in the order of the file.
"""

import pathlib

import gguf
import numpy as np

TYPES = (
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q4_K",
    "Q5_K",
    "Q6_K",
)
HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where a block has float16 numbers, for types that the package does not quantize to."""


def blocks(kind: gguf.GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    """Returns two rows of two blocks of random bits, whose scales are no large numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    if kind.name not in HALVES:
        values = rng.normal(size=(2, 2 * max(elements, 32))).astype(np.float32)
        if kind.name == "F16":
            return values.astype(np.float16)
        return gguf.quantize(values, kind)
    raw = rng.integers(0, 256, (2, 2, size), dtype=np.uint8)
    for at in HALVES[kind.name]:
        scales = rng.normal(size=(2, 2, 1)).astype(np.float16)
        raw[:, :, at : at + 2] = scales.view(np.uint8)
    return raw.reshape(2, 2 * size)


def main() -> None:
    """Writes both files next to this one."""
    folder, rng = pathlib.Path(__file__).parent, np.random.default_rng(1)
    writer = gguf.GGUFWriter(folder / "types.gguf", "llama")
    writer.add_uint8("kind.uint8", 200)
    writer.add_int8("kind.int8", -3)
    writer.add_uint16("kind.uint16", 60000)
    writer.add_int16("kind.int16", -300)
    writer.add_uint32("kind.uint32", 4000000000)
    writer.add_int32("kind.int32", -70000)
    writer.add_float32("kind.float32", 1e-5)
    writer.add_uint64("kind.uint64", 1 << 40)
    writer.add_int64("kind.int64", -(1 << 40))
    writer.add_float64("kind.float64", 1e-300)
    writer.add_bool("kind.bool", True)
    writer.add_string("kind.string", "grüße")
    writer.add_array("list.strings", ["a", "", "ĠÄ"])
    writer.add_array("list.int32", [1, -2, 3])
    writer.add_array("list.float32", [0.1, -2.5])
    expected = []
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        data = blocks(kind, rng)
        writer.add_tensor(f"of.{name}", data, raw_dtype=kind)
        expected.append(gguf.dequantize(data, kind).astype("<f4").ravel())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (folder / "types.f32").write_bytes(np.concatenate(expected).tobytes())


if __name__ == "__main__":
    main()
