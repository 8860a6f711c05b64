"""ULMFiT (Howard & Ruder 2018) in small: an AWD-LSTM language model first, then a classifier of TREC's questions.

python -m benchmarks.ulmfit --data_root DATA [--seeds 0 1 2]

A language model (embeddings of 128, layers of 256) reads WikiText-2 (validation and test, all there is of it here);
then, with each seed, the questions of TREC's training rows, and `recipes/trec.py --model` makes a classifier of it.
Against it: the same network without a language model, and with one but fine-tuned all at once, at one rate or at
discriminative ones (the paper's table 7), or unfrozen in three stages, as the authors' scripts do. Every classifier is
measured on test once; the epoch kept is the best on validation.

Writes benchmarks/results/ulmfit.json after every run; runs that are in it with the same options are not repeated. The
language models are left in outputs/ulmfit.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast, set_seed

from benchmarks.compare import as_table
from benchmarks.runs import complete
from hf_ftstrategies import AwdLstmConfig, AwdLstmForCausalLM, StrategyTrainer, StrategyTrainingArguments
from hf_ftstrategies.data.corpora import load_corpus
from hf_ftstrategies.pipeline.fine_tuning import load_splits
from hf_ftstrategies.pipeline.recipe import run_recipe
from recipes.trec import RECIPE

RESULTS = Path(__file__).parent / "results" / "ulmfit.json"
FOLDER = Path("outputs/ulmfit")
BPTT = 70
SIZES = {"embedding_size": 128, "hidden_size": 256, "vocab_size": 6_000}
RATE = {"learning_rate": 4e-3, "adam_beta1": 0.8, "adam_beta2": 0.99}
COMMON = [
    "--max_length", "64", "--truncation", "head", "--num_train_epochs", "10", "--evaluations", "10",
    "--lr_schedule", "slanted_triangular", "--warmup_steps", "0", "--disable_tqdm", "True",
]  # fmt: skip
ALL_AT_ONCE = ["--layer_decay", "1.0", "--learning_rate", "5e-3", "--unfreezing", "none"]
DISCRIMINATIVE = ["--layer_decay", str(1 / 2.6), "--learning_rate", "1e-2", "--unfreezing"]
VARIANTS = {
    "from scratch": ("untrained", ALL_AT_ONCE),
    "language model, all at once": ("trained", ALL_AT_ONCE),
    "language model, rates / 2.6": ("trained", [*DISCRIMINATIVE, "none"]),
    "language model, rates / 2.6, gradual unfreezing": ("trained", [*DISCRIMINATIVE, "gradual"]),
    "language model, rates / 2.6, unfreezing of the scripts": ("trained", [*DISCRIMINATIVE, "ulmfit"]),
}


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Lower-case words and signs, the most frequent ones."""
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[UNK]", "[PAD]"]
    words.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=SIZES["vocab_size"], special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")


def blocks(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """All texts one after the other, in pieces of `BPTT` tokens."""
    ids = [token for text in tokenizer(texts)["input_ids"] for token in text]
    return Dataset.from_dict({"input_ids": [ids[i : i + BPTT] for i in range(0, len(ids) - BPTT + 1, BPTT)]})


def read_on(model: AwdLstmForCausalLM, rows: Dataset, tokenizer, seed: int, **how) -> dict:
    """Train the language model on these rows but the first twentieth, and measure it there before and after."""
    begin, cut = time.perf_counter(), len(rows) // 20
    with tempfile.TemporaryDirectory() as folder:
        args = StrategyTrainingArguments(
            folder, lr_schedule="slanted_triangular", **RATE, per_device_train_batch_size=64,
            per_device_eval_batch_size=64, save_strategy="no", report_to="none", disable_tqdm=True, seed=seed,
            use_cpu=True, logging_steps=50, dataloader_pin_memory=False, **how,
        )  # fmt: skip
        trainer = StrategyTrainer(
            model,
            args,
            train_dataset=rows.select(range(cut, len(rows))),
            eval_dataset=rows.select(range(cut)),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        )
        before = math.exp(trainer.evaluate()["eval_loss"])
        trainer.train()
        after = math.exp(trainer.evaluate()["eval_loss"])
    return {"blocks": len(rows), "perplexity": [before, after], "seconds": time.perf_counter() - begin}


def language_models(data_root: str, seed: int) -> dict:
    """Make what is not there yet in folders of these names: `general`, and of each seed `untrained` and `trained`."""
    own = FOLDER / f"seed-{seed}"
    run, *_ = RECIPE.parse(["--data_root", data_root])
    questions = list(load_splits(run)[0]["train"]["text"])
    general = _general(data_root, questions)
    if (own / "facts.json").exists():
        return {"wikitext2": general, "trec": json.loads((own / "facts.json").read_text())}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(FOLDER / "general")
    set_seed(seed)
    _save(AwdLstmForCausalLM(AwdLstmConfig(**SIZES, pad_token_id=1)), tokenizer, own / "untrained")
    model = AwdLstmForCausalLM.from_pretrained(FOLDER / "general")
    facts = read_on(model, blocks(questions, tokenizer), tokenizer, seed, num_train_epochs=8, layer_decay=1 / 2.6)
    _save(model, tokenizer, own / "trained")
    (own / "facts.json").write_text(json.dumps(facts))
    return {"wikitext2": general, "trec": facts}


def _general(data_root: str, questions: list[str]) -> dict:
    """The language model of texts in general, with the words of the questions too."""
    folder = FOLDER / "general"
    if not (folder / "facts.json").exists():
        splits = {"wikitext2": ["validation", "test"]}
        texts = list(load_corpus(["wikitext2"], data_root=data_root, splits=splits)[0]["text"])
        tokenizer = make_tokenizer([*texts, *questions])
        set_seed(0)
        model = AwdLstmForCausalLM(AwdLstmConfig(**SIZES, pad_token_id=1))
        facts = read_on(model, blocks(texts, tokenizer), tokenizer, 0, num_train_epochs=4)
        _save(model, tokenizer, folder)
        (folder / "facts.json").write_text(json.dumps(facts))
    return json.loads((folder / "facts.json").read_text())


def _save(model: AwdLstmForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    for part in (model, tokenizer):
        part.save_pretrained(folder)


def run(variant: str, data_root: str, seed: int, options: list[str]) -> dict:
    """One classifier, and what it took."""
    read = language_models(data_root, seed)
    source, _ = VARIANTS[variant]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--output_dir", f"{folder}/out", "--data_root", data_root, "--seed", str(seed)]
        results = run_recipe(RECIPE, [*options, *where, "--model", str(FOLDER / f"seed-{seed}" / source)])
    accuracies = {split: scores["accuracy"] for split, scores in results["metrics"].items()}
    facts = {"variant": variant, "seed": seed, "options": options, "accuracy": accuracies, "language_model": read}
    return facts | {name: results[name] for name in ("time", "peak_memory_mib", "versions", "hardware")}


def by_variant(runs: list[dict]) -> dict[str, dict[int, float]]:
    """Test accuracy of each variant by seed."""
    return {
        variant: {one["seed"]: one["accuracy"]["test"] for one in runs if one["variant"] == variant}
        for variant in VARIANTS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    wanted = []
    for seed, (variant, (_, own)) in product(given.seeds, VARIANTS.items()):
        options = [*COMMON, *own]
        known = {"variant": variant, "seed": seed, "options": options}
        wanted.append((known, partial(run, variant, given.data_root, seed, options)))
    runs = complete(RESULTS, "python -m benchmarks.ulmfit --data_root DATA", wanted)
    print(as_table("trec", by_variant(runs), "from scratch", "test accuracy"))


if __name__ == "__main__":
    main()
