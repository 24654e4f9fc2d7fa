"""Writes small models as llama.cpp keeps them, and as Hugging Face does.

Needs `pip install gguf safetensors llama-cpp-python`. qwen3.json has the logits that llama.cpp
computes. Names are those of gguf's own table; rows of queries and keys
are put in llama.cpp's order, and GPT-2's maps the other way round, as its convert_hf_to_gguf.py
does (LlamaModel.permute, GPT2Model.modify_tensors).
"""

import json
import pathlib

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCAB, POSITIONS = 32, 64, 2, 4, 2, 48, 32


def llama(biased: bool, head: int = HIDDEN // HEADS, normed: bool = False) -> dict:
    """Returns the shapes of Llama's tensors: Qwen2's if `biased`, Qwen3's if `normed`."""
    q, kv = head * HEADS, head * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            shapes[f"{at}self_attn.{name}.weight"] = (rows, HIDDEN)
            if biased:
                shapes[f"{at}self_attn.{name}.bias"] = (rows,)
        shapes[f"{at}self_attn.o_proj.weight"] = (HIDDEN, q)
        if normed:
            shapes |= {f"{at}self_attn.{name}_norm.weight": (head,) for name in "qk"}
        for name in ("gate_proj", "up_proj"):
            shapes[f"{at}mlp.{name}.weight"] = (INNER, HIDDEN)
        shapes[f"{at}mlp.down_proj.weight"] = (HIDDEN, INNER)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{name}.weight"] = (HIDDEN,)
    return shapes | {"model.norm.weight": (HIDDEN,)}


def gpt2() -> dict[str, tuple[int, ...]]:
    """Returns the shapes of GPT-2's tensors."""
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (VOCAB, HIDDEN),
        "transformer.wpe.weight": (POSITIONS, HIDDEN),
    }
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        for name, rows, columns in (
            ("attn.c_attn", HIDDEN, 3 * HIDDEN),
            ("attn.c_proj", HIDDEN, HIDDEN),
            ("mlp.c_fc", HIDDEN, INNER),
            ("mlp.c_proj", INNER, HIDDEN),
        ):
            shapes[f"{at}{name}.weight"] = (rows, columns)
            shapes[f"{at}{name}.bias"] = (columns,)
        for name in ("ln_1", "ln_2"):
            shapes |= {f"{at}{name}.{part}": (HIDDEN,) for part in ("weight", "bias")}
    return shapes | {
        f"transformer.ln_f.{part}": (HIDDEN,) for part in ("weight", "bias")
    }


def permute(values: np.ndarray, heads: int) -> np.ndarray:
    """Returns the rows of queries or keys in llama.cpp's order."""
    parts = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return parts.swapaxes(1, 2).reshape(values.shape)


def write(
    name: str, architecture: str, shapes: dict[str, tuple[int, ...]], quantized: str
) -> None:
    """Writes NAME.gguf and NAME.safetensors, which has the numbers that are in the first."""
    rng = np.random.default_rng(len(name))
    writer = gguf.GGUFWriter(FOLDER / f"{name}.gguf", architecture)
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    if architecture == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(50000.0)
        head = shapes["model.layers.0.self_attn.q_proj.weight"][0] // HEADS
        writer.add_rope_dimension_count(head)
        if head != HIDDEN // HEADS:
            writer.add_key_length(head)
            writer.add_value_length(head)
    writer.add_tokenizer_model("none")
    kind = getattr(gguf.MODEL_ARCH, architecture.upper())
    names, stored = gguf.get_tensor_name_map(kind, LAYERS), {}
    for key, shape in shapes.items():
        values = rng.normal(scale=0.3, size=shape).astype(np.float32)
        if len(shape) == 2 and ".h." in key:
            values = np.ascontiguousarray(values.T)
        if architecture == "llama" and ".q_proj." in key:
            values = permute(values, HEADS)
        if architecture == "llama" and ".k_proj." in key:
            values = permute(values, KV_HEADS)
        own = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if len(shape) == 1:
            writer.add_tensor(own, values)
        else:
            type_ = gguf.GGMLQuantizationType[quantized]
            data = gguf.quantize(values, type_)
            writer.add_tensor(own, data, raw_dtype=type_)
            values = gguf.dequantize(data, type_)
        if architecture == "llama" and (".q_proj." in key or ".k_proj." in key):
            heads = HEADS if ".q_proj." in key else KV_HEADS
            parts = values.reshape(
                heads, values.shape[0] // heads // 2, 2, *values.shape[1:]
            )
            values = parts.swapaxes(1, 2).reshape(values.shape)
        if len(shape) == 2 and ".h." in key:
            values = values.T
        stored[key] = np.ascontiguousarray(values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(stored, FOLDER / f"{name}.safetensors")


def compute(name: str, ids: list[int]) -> None:
    """Writes NAME.json: ids, and the logits after each, with caches of float32."""
    model = llama_cpp.Llama(
        str(FOLDER / f"{name}.gguf"),
        n_ctx=POSITIONS,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)], np.float64).round(6).tolist()
    (FOLDER / f"{name}.json").write_text(
        json.dumps({"input_ids": ids, "logits": logits}) + "\n"
    )


if __name__ == "__main__":
    write("llama", "llama", llama(biased=True), "Q4_1")
    write("qwen2", "qwen2", llama(biased=True), "Q8_0")
    write("qwen3", "qwen3", llama(biased=False, head=16, normed=True), "F32")
    write("gpt2", "gpt2", gpt2(), "Q5_0")
    compute("qwen3", [5, 9, 7, 11, 3, 40, 47, 0])
