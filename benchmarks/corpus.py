"""Texts to batches of further pre-training, step by step: how much each does in a second of CPU time.

python -m benchmarks.corpus [--data_root DATA] [--dataset imdb] [--rows 2000] [--repeats 3]

Without a data root the texts are random words. Writes benchmarks/results/corpus.json; a run of the same data set
and rows is replaced. Each figure is the best of the repeats.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hf_ftstrategies.data.masking import MaskedExamples, PretrainingCollator
from hf_ftstrategies.data.next_sentence import (
    build_next_sentence_examples,
    example_statistics,
    next_sentence_examples,
)
from hf_ftstrategies.data.sentences import sentence_ids, split_sentences
from hf_ftstrategies.data.sources import load_dataset_splits
from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.pipeline.machine import hardware, versions

RESULTS = Path(__file__).parent / "results" / "corpus.json"
BATCH = 32


def load_texts(dataset: str, data_root: str | None, rows: int) -> list[str]:
    """Training texts, or random ones: about 10 sentences of about 20 words."""
    if data_root is not None:
        splits, _ = load_dataset_splits(dataset, data_root=data_root)
        return splits["train"][:rows]["text"]
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), size=rng.integers(2, 9))) for _ in range(5000)]
    return [
        " ".join(" ".join(rng.choice(words, size=rng.integers(5, 36))) + "." for _ in range(rng.integers(1, 20)))
        for _ in range(rows)
    ]


def run(texts: list[str], tokenizer: PreTrainedTokenizerBase, repeats: int) -> dict:
    """Figures of every step."""

    def best(step: Callable[[], object]) -> tuple[float, object]:
        seconds = []
        for _ in range(repeats):
            begin = time.process_time()
            result = step()
            seconds.append(time.process_time() - begin)
        return min(seconds), result

    split_sentences(texts[:10])  # spaCy is imported
    words = sum(len(text.split()) for text in texts)
    seconds, sentences = best(lambda: split_sentences(texts))
    facts = {"texts": len(texts), "words": words, "sentences": sum(map(len, sentences))}
    facts["split_words_per_cpu_second"] = words / seconds
    seconds, ids = best(lambda: sentence_ids({"text": texts}, tokenizer)["sentences"])
    facts["split_and_tokenize_words_per_cpu_second"] = words / seconds

    rows = Dataset.from_dict({"sentences": ids})
    fn_kwargs = {"tokenizer": tokenizer}
    steps = {
        "build": lambda: build_next_sentence_examples(ids, tokenizer),
        "build_single_segments": lambda: build_next_sentence_examples(ids, tokenizer, next_sentence=False),
        "build_by_map": lambda: rows.map(
            next_sentence_examples,
            batched=True,
            with_indices=True,
            fn_kwargs=fn_kwargs,
            remove_columns=["sentences"],
            load_from_cache_file=False,
        ),
    }
    for name, step in steps.items():
        seconds, built = best(step)
        statistics = example_statistics(built, ids)
        facts[name] = {
            "examples_per_cpu_second": statistics["examples"] / seconds,
            "tokens_per_cpu_second": statistics["tokens"] / seconds,
            "statistics": statistics,
        }
    examples = build_next_sentence_examples(ids, tokenizer)
    tokens = facts["build"]["statistics"]["tokens"]
    collator = PretrainingCollator(tokenizer)
    for name, whole_words in (("mask", False), ("mask_whole_words", True)):
        masked = MaskedExamples(examples, tokenizer, whole_words=whole_words)
        seconds, masks = best(lambda masked=masked: [masked[index] for index in range(len(masked))])
        facts[name] = {"examples_per_cpu_second": len(masks) / seconds, "tokens_per_cpu_second": tokens / seconds}
    seconds, _ = best(lambda: [collator(masks[start : start + BATCH]) for start in range(0, len(masks), BATCH)])
    facts["collate"] = {"examples_per_cpu_second": len(masks) / seconds, "tokens_per_cpu_second": tokens / seconds}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root")
    parser.add_argument("--dataset", default="imdb")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(find_pretrained("minilm").path)
    dataset = options.dataset if options.data_root else "random words"
    facts = run(load_texts(options.dataset, options.data_root, options.rows), tokenizer, options.repeats)
    found = {
        "versions": versions() | {name: version(name) for name in ("spacy", "tokenizers", "numpy")},
        "hardware": hardware(torch.device("cpu"), 1),
    }
    one = {"dataset": dataset, "rows": options.rows, "repeats": options.repeats, **facts, **found}
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    runs = [run for run in runs if (run["dataset"], run["rows"]) != (dataset, options.rows)]
    content = {"command": "python -m benchmarks.corpus [--data_root DATA]", "runs": [*runs, one]}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
