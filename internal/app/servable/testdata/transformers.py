"""Prints what transformers makes of golden.json's examples: transformers.py MODEL GOLDEN."""

import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

folder, golden = sys.argv[1:]
with open(golden) as f:
    examples = json.load(f)
names = ("input_ids", "attention_mask", "token_type_ids")
tokens = {name: torch.tensor(examples[name]) for name in names}
model, report = AutoModelForSequenceClassification.from_pretrained(
    folder, output_loading_info=True
)
assert not report["missing_keys"] and not report["unexpected_keys"], report
tokenizer = AutoTokenizer.from_pretrained(folder)
assert tokenizer("a b", "h")["input_ids"] == [2, 4, 5, 3, 11, 3], tokenizer("a b", "h")
with torch.no_grad():
    print(json.dumps(torch.softmax(model.eval()(**tokens).logits, -1).tolist()))
