"""The measured programs, a file each."""

from __future__ import annotations

from peers import (
    data,
    dense,
    distribute,
    gemm,
    generation,
    gorbit,
    hf,
    jaxbert,
    keras,
    learning,
    orbit,
    sentences,
    serving,
    text,
    tfdata,
    translation,
)
from peers.base import Peer, Worker

TRAIN: tuple[Peer, ...] = (
    *(gorbit.Train(), gorbit.Narrow(), orbit.Orbit(), keras.Fit(), hf.Trainer(), hf.Settings()),
    jaxbert.Jax(),
)
MASKED: tuple[Peer, ...] = (gorbit.Masked(), keras.MaskedFit(), hf.MaskedTrainer())
INPUT: tuple[Peer, ...] = (gorbit.Input(), tfdata.Reader())
DENSE: tuple[Peer, ...] = (dense.Gorbit(), dense.Reader())
PREDICT: tuple[Peer, ...] = (
    gorbit.Predict(),
    gorbit.Evaluate(),
    gorbit.Forward(),
    gorbit.Exported(),
    gorbit.Int8(),
    hf.Predict(),
    serving.OrtPredict(),
)
SERVE: tuple[Peer, ...] = (serving.Gorbit(), serving.Ort(), serving.Pipeline())
STREAMS: tuple[Peer, ...] = (generation.Served(), generation.Llama(), generation.Generate())
TRANSLATE: tuple[Peer, ...] = (
    translation.Predict(),
    translation.Exported(),
    translation.Served(),
    translation.CTranslate2(),
    translation.Generate(),
)
LEARN = learning.Learn()
TEXT_TRAIN: tuple[Peer, ...] = (gorbit.Text(), LEARN)
TEXT_SCORES: tuple[Peer, ...] = (gorbit.Scores(), learning.Scores())
GENERATE: dict[str, tuple[Peer, ...]] = {
    **{"smollm": STREAMS, "translate": TRANSLATE},
    **{"gpt2": TEXT_TRAIN, "t5": TEXT_TRAIN, "evaluate": (*TEXT_SCORES, translation.CTranslate2())},
}
"""The peers of each part of the suite of generation."""
STRATEGY: tuple[Peer, ...] = (gorbit.Strategies(), distribute.Distribute())
TEXT: tuple[Peer, ...] = (text.Tokenizer(), text.Rust())
CONVERT: tuple[Peer, ...] = (text.Convert(),)
KERNELS = gorbit.Kernels()
GEMM = gemm.Gemm()
DATA = data.Data()
BLOCKS = data.Blocks()
DENSE_DATA = dense.Data()
WEIGHTS = hf.Weights()
QUALITY = hf.Quality()
PRETRAIN = hf.Pretrain()
ONNX = serving.Onnx()
ONNX8 = serving.OnnxInt8()
SENTENCES = sentences.Sentences()
COLUMNS = learning.Columns()
FIRST = learning.First()
CT2 = translation.Converter()
PROMPTS = generation.Prompts()
PRECISIONS = generation.Precisions()
PREPARE: tuple[Peer, ...] = (
    *(GEMM, DATA, DENSE_DATA, WEIGHTS, QUALITY, PRETRAIN, ONNX, ONNX8, BLOCKS),
    *(PROMPTS, PRECISIONS, CT2, COLUMNS, FIRST, SENTENCES),
)


def worker(name: str) -> Worker:
    """Returns the Python peer with this name."""
    generate = (peer for some in GENERATE.values() for peer in some)
    measured = (*TRAIN, *MASKED, *INPUT, *DENSE, *PREDICT, *SERVE, *generate, *STRATEGY)
    for peer in (*measured, *PREPARE):
        if peer.name == name and isinstance(peer, Worker):
            return peer
    raise KeyError(name)
