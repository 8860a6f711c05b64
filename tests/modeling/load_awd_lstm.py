"""Load an AWD-LSTM where this package is not installed: `python load_awd_lstm.py FOLDER`. Prints JSON."""

import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

TEXTS = ["w1 w2 w3 w4 w5 w6 w7", "w9", "w8 w8 unseen"]


def found_in(folder, **options):
    """Logits of texts of several lengths, and the labels that a pipeline gives them."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.tolist()
    classify = pipeline("text-classification", model=folder, **options)
    labels = [answer["label"] for answer in classify(TEXTS, batch_size=2)]
    return {"logits": logits, "labels": labels, "module": type(model).__module__.partition(".")[0]}


if __name__ == "__main__":
    sys.modules["hf_ftstrategies"] = None  # an import of it is an error
    print(f"\n{json.dumps(found_in(sys.argv[1], trust_remote_code=True))}")
