"""Multi-task fine-tuning (Sun et al. 2019, section 5.5) with the demo model, on 1,000 rows of each of three tasks.

python -m benchmarks.multitask --data_root DATA [--seeds 0 1 2]

TREC, Banking77 and AG's News together, then TREC or Banking77 alone, against fine-tuning on that one from the start,
for as many epochs as the second stage has, and for as many as both have. For each seed the same rows. Nothing is
selected: every run is measured once, at its end, on 500 test rows.

Writes benchmarks/results/multitask.json after every run; runs that are in it with the same options are not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.compare import as_table
from benchmarks.runs import complete
from hf_ftstrategies.pipeline.recipe import run_recipe
from recipes.multitask import RECIPE

RESULTS = Path(__file__).parent / "results" / "multitask.json"
COMMON = [
    "--model", "minilm", "--max_length", "64", "--truncation", "head", "--learning_rate", "1e-4",
    "--train_rows", "1000", "--validation_rows", "100", "--test_rows", "500",
    "--evaluations", "1", "--load_best_model_at_end", "False", "--disable_tqdm", "True",
]  # fmt: skip
TOGETHER = ["--multitask", "trec,banking77,ag_news", "--multitask_epochs", "4", "--multitask_learning_rate", "1e-4"]
VARIANTS = {
    "alone, 4 epochs": ["--multitask", "none", "--num_train_epochs", "4"],
    "alone, 8 epochs": ["--multitask", "none", "--num_train_epochs", "8"],
    "together, then alone, 4 epochs each": [*TOGETHER, "--num_train_epochs", "4"],
}
STAGE = "together, 4 epochs"
TARGETS = ("trec", "banking77")


def run(target: str, variant: str, data_root: str, seed: int, options: list[str]) -> dict:
    """One run, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        where = ["--output_dir", f"{folder}/out", "--data_root", data_root, "--seed", str(seed)]
        results = run_recipe(RECIPE, [*options, *where])
    facts = {"target": target, "variant": variant, "seed": seed, "options": options}
    facts["accuracy"] = results["metrics"]["test"]["accuracy"]
    if "multitask" in results:
        tasks = results["multitask"]["tasks"]
        facts["together"] = {name: task["metrics"]["test"]["accuracy"] for name, task in tasks.items()}
    return facts | {name: results[name] for name in ("time", "peak_memory_mib", "versions", "hardware")}


def by_variant(runs: list[dict], target: str) -> dict[str, dict[int, float]]:
    """Test accuracy of each variant by seed, and that of the target's head after the first stage."""
    scores: dict[str, dict[int, float]] = {variant: {} for variant in (*VARIANTS, STAGE)}
    for one in runs:
        if one["target"] == target:
            scores[one["variant"]][one["seed"]] = one["accuracy"]
            if "together" in one:
                scores[STAGE][one["seed"]] = one["together"][target]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    wanted = []
    for seed, target, (variant, own) in product(given.seeds, TARGETS, VARIANTS.items()):
        options = [*COMMON, "--dataset", target, *own]
        known = {"target": target, "seed": seed, "options": options}
        wanted.append((known, partial(run, target, variant, given.data_root, seed, options)))
    runs = complete(RESULTS, "python -m benchmarks.multitask --data_root DATA", wanted)
    for target in TARGETS:
        print(as_table(target, by_variant(runs, target), "alone, 8 epochs", "test accuracy"), end="\n\n")


if __name__ == "__main__":
    main()
