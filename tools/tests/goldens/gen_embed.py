"""Writes embed/: a small BERT with random weights, and what sentence-transformers computes of it.

There is model.safetensors with config.json, cases.json with the token ids, the vectors, and the
loss of each case, and CASE.safetensors with the gradients. All is computed in float64, and the
gradients are kept in float32. Another folder can be named.

st/bin/python tools/tests/goldens/gen_embed.py [FOLDER]

in an environment with torch, transformers and sentence-transformers.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, losses, models

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = transformers.BertConfig(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    vocab_size=20,
    max_position_embeddings=16,
)
# Anchors, texts that are like them, and texts that are not.
TEXTS = [
    [[2, 5, 9, 3], [2, 4, 8, 3], [2, 6, 19, 12, 3], [2, 7, 3]],
    [[2, 5, 8, 3], [2, 11, 3], [2, 6, 18, 3], [2, 7, 10, 13, 14, 3]],
    [[2, 15, 3], [2, 16, 17, 3], [2, 9, 9, 9, 9, 3], [2, 4, 3]],
]
SCORES = [0.9, 0.1, -0.5, 0.4]


def model_of(folder: str, pooling: str, normalize: bool) -> SentenceTransformer:
    """Makes a model of the encoder in a folder."""
    parts = [models.Transformer(folder), models.Pooling(CONFIG.hidden_size, pooling)]
    return (
        SentenceTransformer(
            modules=[*parts, *([models.Normalize()] if normalize else [])], device="cpu"
        )
        .double()
        .eval()
    )


def batch(texts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Pads texts to the longest."""
    most = max(map(len, texts))
    ids = torch.tensor([t + [0] * (most - len(t)) for t in texts])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def cases(folder: str):
    """Yields the name, model, loss, number of texts and labels of each case."""
    for name, pooling, normalize in (("mean", "mean", True), ("first", "cls", False)):
        model = model_of(folder, pooling, normalize)
        yield f"ranking-{name}", model, losses.MultipleNegativesRankingLoss(model), 2, None
    model = model_of(folder, "mean", True)
    ranking = losses.MultipleNegativesRankingLoss(model)
    yield "ranking-three", model, ranking, 3, None
    yield "matryoshka", model, losses.MatryoshkaLoss(model, ranking, [8, 4, 2]), 2, None
    yield "cosine", model, losses.CosineSimilarityLoss(model), 2, torch.tensor(SCORES).double()
    model = model_of(folder, "mean", False)
    yield "triplet", model, losses.TripletLoss(model), 3, None


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "embed"
    out.mkdir(exist_ok=True)
    torch.manual_seed(7)
    encoder = transformers.BertModel(CONFIG, add_pooling_layer=False).eval()
    with torch.no_grad():
        for p in encoder.parameters():
            p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
    encoder.save_pretrained(out)
    found = {"texts": TEXTS, "scores": SCORES, "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(4, 20))]
        (pathlib.Path(folder) / "vocab.txt").write_text("\n".join(words) + "\n")
        transformers.BertTokenizer(folder + "/vocab.txt").save_pretrained(folder)
        for name, model, loss, count, labels in cases(folder):
            model.zero_grad()
            value = loss([batch(texts) for texts in TEXTS[:count]], labels)
            value.backward()
            gradients = {
                n.split("model.", 1)[-1]: p.grad.float().contiguous()
                for n, p in model.named_parameters()
                if p.grad is not None
            }
            save_file(gradients, out / f"{name}.safetensors")
            with torch.no_grad():
                vectors = model(batch(TEXTS[0]))["sentence_embedding"].tolist()
            found["cases"][name] = {"loss": value.item(), "vectors": vectors}
    (out / "cases.json").write_text(json.dumps(found) + "\n")


main()
