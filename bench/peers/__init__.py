"""The measured programs, a file each."""

from __future__ import annotations

from peers import data, dense, distribute, gemm, gorbit, hf, keras, orbit, serving, text, tfdata
from peers.base import Peer, Worker

TRAIN: tuple[Peer, ...] = (gorbit.Train(), orbit.Orbit(), keras.Fit(), hf.Trainer())
MASKED: tuple[Peer, ...] = (gorbit.Masked(), keras.MaskedFit(), hf.MaskedTrainer())
INPUT: tuple[Peer, ...] = (gorbit.Input(), tfdata.Reader())
DENSE: tuple[Peer, ...] = (dense.Gorbit(), dense.Reader())
PREDICT: tuple[Peer, ...] = (
    gorbit.Predict(),
    gorbit.Evaluate(),
    gorbit.Forward(),
    gorbit.Exported(),
    hf.Predict(),
    serving.OrtPredict(),
)
SERVE: tuple[Peer, ...] = (serving.Gorbit(), serving.Ort(), serving.Pipeline())
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
PREPARE: tuple[Peer, ...] = (GEMM, DATA, DENSE_DATA, WEIGHTS, QUALITY, PRETRAIN, ONNX, BLOCKS)


def worker(name: str) -> Worker:
    """Returns the Python peer with this name."""
    for peer in (*TRAIN, *MASKED, *INPUT, *DENSE, *PREDICT, *SERVE, *STRATEGY, *PREPARE):
        if peer.name == name and isinstance(peer, Worker):
            return peer
    raise KeyError(name)
