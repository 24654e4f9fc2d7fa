"""Writes small models as llama.cpp keeps them, and as Hugging Face does.

Needs `pip install gguf safetensors llama-cpp-python`. NAME.json has the logits that llama.cpp
computes, and the config.json of the model. Names are those of gguf's own table; rows of queries and
keys are put in llama.cpp's order, GPT-2's maps the other way round, and 1 is added to Gemma's norms,
as its convert_hf_to_gguf.py does (LlamaModel.permute, GPT2Model.modify_tensors,
GemmaModel.modify_tensors).

Names given write these alone.
"""

import json
import math
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent
IDS = [5, 9, 7, 11, 3, 40, 47, 0]
LONG = [*IDS, 12, 33, 9, 9, 21, 46, 1, 2, 30, 17, 5, 44]
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


SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 0.5,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 16,
    },
}
"""How turns of the model scaled.safetensors are scaled in files of its own."""

FORM = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "vocab_size": VOCAB,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
GEMMA = {
    **FORM,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "head_dim": 16,
    "hidden_act": "gelu_pytorch_tanh",
}
GEMMA2 = {
    **GEMMA,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 16,
}
CONFIGS = {
    "gemma": {**GEMMA, "model_type": "gemma"},
    "gemma2": {
        **GEMMA2,
        "model_type": "gemma2",
        "sliding_window": 6,
        "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3": {
        **GEMMA2,
        "model_type": "gemma3_text",
        "sliding_window": 6,
        "num_hidden_layers": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    **{
        name: {
            **FORM,
            "model_type": "llama",
            "rope_theta": 50000.0,
            "rope_scaling": scaling,
        }
        for name, scaling in SCALED.items()
    },
}
"""The config.json of the models whose logits are kept."""


def released(config: dict) -> dict[str, np.ndarray]:
    """Returns random weights of a model under Hugging Face's names."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads, inner = config["num_key_value_heads"], config["intermediate_size"]
    head = config.get("head_dim", width // heads)
    gemma = config["model_type"].startswith("gemma")
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes[f"{at}self_attn.q_proj.weight"] = (heads * head, width)
        shapes |= {
            f"{at}self_attn.{n}_proj.weight": (kv_heads * head, width) for n in "kv"
        }
        shapes[f"{at}self_attn.o_proj.weight"] = (width, heads * head)
        shapes |= {f"{at}mlp.{n}_proj.weight": (inner, width) for n in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (width, inner)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if config["model_type"] in ("gemma2", "gemma3_text"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        shapes |= {f"{at}{name}.weight": (width,) for name in norms}
        if config["model_type"] == "gemma3_text":
            shapes |= {f"{at}self_attn.{n}_norm.weight": (head,) for n in "qk"}
    shapes["model.norm.weight"] = (width,)
    rng = np.random.default_rng(len(shapes))
    weights = {}
    for name, shape in shapes.items():
        # To sixteen bits, so that 1 can be added to norms and taken away.
        values = rng.normal(scale=0.3, size=shape).astype(np.float16).astype(np.float32)
        weights[name] = values if len(shape) == 2 or gemma else values + 1
    return weights


def frequencies(config: dict) -> np.ndarray:
    """Returns rope_freqs of llama.cpp's LlamaModel.generate_extra_tensors."""
    scaling, dim = (
        config["rope_scaling"],
        config["hidden_size"] // config["num_attention_heads"],
    )
    factor, low, high = (
        scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor")
    )
    longest, factors = scaling["original_max_position_embeddings"], []
    for freq in 1.0 / (
        config["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim)
    ):
        wavelen = 2 * math.pi / freq
        smooth = (longest / wavelen - low) / (high - low)
        if wavelen < longest / high:
            factors.append(1)
        elif wavelen > longest / low:
            factors.append(factor)
        else:
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def convert(name: str) -> None:
    """Writes NAME.gguf of a model of CONFIGS, as convert_hf_to_gguf.py does, and its weights."""
    config = CONFIGS[name]
    kind = config["model_type"].removesuffix("_text")
    weights, layers = released(config), config["num_hidden_layers"]
    writer = gguf.GGUFWriter(FOLDER / f"{name}.gguf", kind)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    for key, add in (
        ("head_dim", writer.add_key_length),
        ("head_dim", writer.add_value_length),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
        ("sliding_window", writer.add_sliding_window),
        ("rope_theta", writer.add_rope_freq_base),
    ):
        if key in config:
            add(config[key])
    scaling = config.get("rope_scaling", {"rope_type": "none"})
    if scaling["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(
            scaling["original_max_position_embeddings"]
        )
    if scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", frequencies(config))
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, kind.upper()), layers)
    for key, values in weights.items():
        if kind == "llama" and ".q_proj." in key:
            values = permute(values, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in key:
            values = permute(values, config["num_key_value_heads"])
        if kind != "llama" and key.endswith("norm.weight"):
            values = values + 1
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(weights, FOLDER / f"{'scaled' if name in SCALED else name}.safetensors")


def compute(name: str, ids: list[int]) -> None:
    """Writes NAME.json: the logits after each of `ids`, with caches of float32."""
    import llama_cpp

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
    config = {"config": CONFIGS[name]} if name in CONFIGS else {}
    (FOLDER / f"{name}.json").write_text(
        json.dumps({**config, "input_ids": ids, "logits": logits}) + "\n"
    )


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["llama", "qwen2", "qwen3", "gpt2", *CONFIGS]
    for name, shapes, quantized in (
        ("llama", llama(biased=True), "Q4_1"),
        ("qwen2", llama(biased=True), "Q8_0"),
        ("qwen3", llama(biased=False, head=16, normed=True), "F32"),
        ("gpt2", gpt2(), "Q5_0"),
    ):
        if name in wanted:
            write(name, name, shapes, quantized)
    for name in CONFIGS:
        if name in wanted:
            convert(name)
    for name, ids in {"qwen3": IDS, **dict.fromkeys(CONFIGS, LONG)}.items():
        if name in wanted:
            compute(name, ids)
