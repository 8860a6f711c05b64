"""BBC News: the recipe, its parts, and stock Trainer on the same rows, over several seeds.

python -m benchmarks.bbc_news [--seeds 0 1 2] [--variants stock recipe ...]

Writes benchmarks/results/bbc_news.json after every run; runs that are in it already are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from functools import partial
from pathlib import Path

from transformers import DataCollatorWithPadding, Trainer

from benchmarks.compare import as_table
from benchmarks.runs import complete
from hf_ftstrategies.pipeline.fine_tuning import prepare_fine_tuning
from hf_ftstrategies.pipeline.machine import hardware, versions
from recipes.bbc_news import RECIPE

RESULTS = Path(__file__).parent / "results" / "bbc_news.json"
OFF = ["--layer_decay", "1.0", "--lr_schedule", "none", "--unfreezing", "none", "--reinit_layers", "0"]
SLOPE = [*OFF, "--layer_decay", "0.95", "--lr_schedule", "slanted_triangular"]
VARIANTS = {
    "stock, 1e-4": [*OFF, "--learning_rate", "1e-4"],
    "stock, 3e-4": [*OFF, "--learning_rate", "3e-4"],
    "decay + triangular, 1e-4": [*SLOPE, "--learning_rate", "1e-4"],
    "decay + triangular, 3e-4": [*SLOPE, "--learning_rate", "3e-4"],
    "decay + triangular + re-init 1, 3e-4": [*SLOPE, "--learning_rate", "3e-4", "--reinit_layers", "1"],
    "decay + triangular + gradual, 3e-4": [
        *SLOPE, "--learning_rate", "3e-4", "--unfreezing", "gradual", "--unfreeze_every", "0.05",
    ],
}  # fmt: skip


def run(variant: str, seed: int) -> dict:
    """Train and evaluate one variant with one seed."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--output_dir", folder, "--seed", str(seed), "--disable_tqdm", "True", *VARIANTS[variant]]
        stage = prepare_fine_tuning(*RECIPE.parse(options)[:2])
        if variant.startswith("stock"):
            ours = stage.trainer
            trainer = Trainer(
                model=ours.model,
                args=dataclasses.replace(ours.args, eval_strategy="epoch", save_strategy="epoch", evaluations=None),
                train_dataset=ours.train_dataset,
                eval_dataset=ours.eval_dataset,
                processing_class=ours.processing_class,
                data_collator=DataCollatorWithPadding(ours.processing_class),
                compute_metrics=ours.compute_metrics,
            )
            stage = dataclasses.replace(stage, trainer=trainer)
        begin = time.perf_counter()
        stage.trainer.train()
        seconds = time.perf_counter() - begin
        metrics = stage.evaluate()["metrics"]
    scores = {split: {name: metrics[split][name] for name in ("accuracy", "macro_f1", "loss")} for split in metrics}
    facts = {"versions": versions(), "hardware": hardware(stage.args.device, 1)}
    return {"variant": variant, "seed": seed, "train_seconds": seconds, **scores, **facts}


def by_variant(runs: list[dict]) -> dict[str, dict[int, float]]:
    """Test accuracy of each variant by seed."""
    scores: dict[str, dict[int, float]] = {}
    for one in runs:
        scores.setdefault(one["variant"], {})[one["seed"]] = one["test"]["accuracy"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    wanted = [
        ({"variant": variant, "seed": seed}, partial(run, variant, seed))
        for seed in options.seeds
        for variant in options.variants
    ]
    runs = complete(RESULTS, "python -m benchmarks.bbc_news", wanted)
    print(as_table("variant", by_variant(runs), "stock, 1e-4", "test accuracy"))


if __name__ == "__main__":
    main()
