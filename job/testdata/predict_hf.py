"""Answers on pairs of texts with Hugging Face's text-classification pipeline.

    python predict_hf.py PAIRS.tsv --vocab vocab.txt [--size minilm] [--batch-size 1 32]

PAIRS.tsv has two texts a line with a tab between them, as `gorbit predict --file` takes
them. The model is a BertForSequenceClassification with random weights: the time does
not depend on them. Each batch size gives one JSON line: the seconds spent on answering
alone, examples per second, and the seconds from the process' start, which include
loading the libraries.
"""

import argparse
import json
import resource
import time
from pathlib import Path

BEGUN = time.perf_counter()

SIZES = {  # layers, hidden size, heads, intermediate size
    "tiny": (2, 128, 2, 512),
    "minilm": (6, 384, 12, 1536),
    "base": (12, 768, 12, 3072),
}


def main() -> None:
    """Measure the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="minilm")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--limit", type=int, default=None, help="answer on the first so many only")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[1, 32])
    args = parser.parse_args()

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    words = args.vocab.read_text(encoding="utf-8").splitlines()
    layers, hidden, heads, intermediate = SIZES[args.size]
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=intermediate,
            num_labels=2,
        )
    ).eval()
    tokenizer = transformers.BertTokenizerFast(
        vocab={word: i for i, word in enumerate(words)}, do_lower_case=True
    )
    classify = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer, device="cpu"
    )
    lines = args.pairs.read_text(encoding="utf-8").split("\n")
    pairs = [
        dict(zip(("text", "text_pair"), line.split("\t"), strict=True)) for line in lines if line
    ]
    pairs = pairs[: args.limit]
    options = {"truncation": True, "max_length": args.max_length}
    loaded = time.perf_counter() - BEGUN
    for batch_size in args.batch_size:
        classify(pairs[:batch_size], batch_size=batch_size, **options)  # the first call is slower
        start = time.perf_counter()
        answers = classify(pairs, batch_size=batch_size, **options)
        seconds = time.perf_counter() - start
        if len(answers) != len(pairs):
            raise SystemExit(f"{len(answers)} answers on {len(pairs)} pairs")
        print(
            json.dumps(
                {
                    "bench": "hf-pipeline",
                    "size": args.size,
                    "batch_size": batch_size,
                    "examples": len(pairs),
                    "seconds": round(seconds, 2),
                    "examples_per_second": round(len(pairs) / seconds, 1),
                    "load_seconds": round(loaded, 2),
                    "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                    "torch": torch.__version__,
                    "transformers": transformers.__version__,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
