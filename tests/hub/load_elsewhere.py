"""Load what was pushed where this package is not installed: `python load_elsewhere.py REVISION`.

Prints JSON. A process of its own, because nothing of the package may be there.
"""

import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

TEXTS = ["w1 w2 w3 w4", "w31 w40 w50 w33 w41", "w70 w80"]


def logits(model, tokenizer):
    with torch.no_grad():
        return model.eval()(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.tolist()


def load(name, **options):
    return AutoModelForSequenceClassification.from_pretrained(name, **options)


def refusal(name):
    try:
        load(name, trust_remote_code=False)
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    sys.modules["hf_ftstrategies"] = None  # an import of it is an error
    found = {}
    trusted = {"trust_remote_code": True}
    for name, options in (("stock", {}), ("encoder", trusted), ("multitask", trusted), ("awd_lstm", trusted)):
        name = f"user/{name}"
        model, tokenizer = load(name, **options), AutoTokenizer.from_pretrained(name)
        found[name] = {"class": type(model).__name__, "logits": logits(model, tokenizer)}
        classify = pipeline("text-classification", name, **options)
        found[name]["pipeline"] = [answer["label"] for answer in classify(TEXTS)]
    found["pinned"] = logits(load("user/stock", revision=sys.argv[1]), AutoTokenizer.from_pretrained("user/stock"))
    found["untrusted"] = refusal("user/encoder")
    print(f"\n{json.dumps(found)}")  # after a question about trust
