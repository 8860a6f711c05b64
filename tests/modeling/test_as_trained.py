"""The pipeline of a saved model reads texts as the training did."""

import json
import random
import re
import subprocess
import sys

import pytest
import torch
from transformers import pipeline

from hf_ftstrategies.data.chunking import encode_chunks
from hf_ftstrategies.data.truncation import encode_batch
from hf_ftstrategies.modeling.as_trained import AsTrainedPipeline
from hf_ftstrategies.pipeline.recipe import run_recipe
from tests.pipeline.tiny_run import recipe

SHORT = {"max_steps": 2, "evaluations": 1, "unfreezing": "none", "load_best_model_at_end": False}
READINGS = {
    "head + tail": {},
    "head": {"truncation": "head"},
    "tail": {"truncation": "tail"},
    "half": {"truncation": "half", "max_length": 15},
    "layers": {"layers": "0,2", "layer_pooling": "mean"},
    "all chunks": {"chunk_pooling": "mean"},
    "overlapping chunks": {"chunk_pooling": "attention", "chunk_stride": 5},
    "two chunks": {"chunk_pooling": "max", "max_chunks": 2, "truncation": "half", "max_length": 15},
}


def texts():
    draw = random.Random(0)
    return [" ".join(f"w{draw.randrange(90)}" for _ in range(count)) for count in (1, 12, 13, 14, 15, 26, 27, 28, 70)]


def encoded(options, tokenizer):
    """As the training encodes."""
    settings = {"max_length": options.get("max_length", 16), "strategy": options.get("truncation", "head_tail")}
    settings |= {"head": 4}
    if "chunk_pooling" not in options:
        return [[ids] for ids in encode_batch(tokenizer, texts(), **settings)["input_ids"]]
    settings |= {"stride": options.get("chunk_stride", 0), "max_chunks": options.get("max_chunks")}
    return encode_chunks(tokenizer, texts(), **settings)["input_ids"]


@pytest.mark.parametrize("options", READINGS.values(), ids=READINGS)
def test_tokens_are_those_of_the_training(tmp_path, options):
    run_recipe(recipe(tmp_path, **SHORT, **options), [])
    out = tmp_path / "out"
    ours = json.loads((out / "config.json").read_text())["model_type"] == "encoder_classifier"
    task = "text-classification" if ours else "long-text-classification"
    classify = pipeline(task, str(out), trust_remote_code=True)
    assert type(classify).__name__ == AsTrainedPipeline.__name__
    for text, expected in zip(texts(), encoded(options, classify.tokenizer), strict=True):
        found = classify.preprocess(text)
        rows = [row[mask.bool()].tolist() for row, mask in zip(found["input_ids"], found["attention_mask"])]
        assert rows == expected
        assert found.get("chunk_counts", torch.tensor([1])).tolist() == [len(expected)]
    answers = classify(texts(), batch_size=4)
    assert [answer["label"] for answer in answers] == [classify(text)[0]["label"] for text in texts()]


def test_pairs_are_cut_too(tmp_path):
    run_recipe(recipe(tmp_path, **SHORT), [])
    classify = pipeline("long-text-classification", str(tmp_path / "out"), trust_remote_code=True)
    pair = {"text": texts()[-1], "text_pair": texts()[-2]}
    assert classify.preprocess(pair)["input_ids"].shape == (1, 16)
    assert classify(pair)["label"] in classify.model.config.id2label.values()


@pytest.mark.parametrize("name", ["head + tail", "head", "overlapping chunks", "pairs"])
def test_the_code_of_the_card_runs_elsewhere(tmp_path, name):
    """Every block, in the folder of the model; of stock models without the package."""
    options = READINGS.get(name, {})
    made = recipe(tmp_path, **SHORT, **options)
    if name == "pairs":
        lines = (tmp_path / "topics.csv").read_text().splitlines()[1:]
        pairs = [f"{line.split(',')[0]},{line}" for line in lines]
        (tmp_path / "topics.csv").write_text("\n".join(["sentence1,sentence2,label", *pairs]) + "\n")
    run_recipe(made, [])
    blocks = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == {"head + tail": 3}.get(name, 2)
    code = "\n".join(blocks)
    if "EncoderClassifier" not in code:
        code = f"import sys\nsys.modules['hf_ftstrategies'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(re.findall("fruit|metal|weather", done.stdout)) == 2
