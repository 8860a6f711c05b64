"""Xu et al. 2020 and the baselines of Zhang et al. 2021 with the demo model, on 1,000 questions and 5,000 phrases.

python -m benchmarks.xu_tables --data_root DATA [--tasks trec sst2] [--seeds 0 1 2 3 4]

Plain fine-tuning against self-distillation (SDA, SDV), self-ensemble, mixout and decay to the pre-trained weights, one
at a time: the same rows, and for each seed the same head and order of rows. Nothing is selected: every run is measured
once, at its end, on rows that it did not train on (TREC: test; SST-2: GLUE's validation split).

Writes benchmarks/results/xu_tables.json and its picture after every run; runs that are in it with the same options are
not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.compare import as_table
from benchmarks.runs import complete
from hf_ftstrategies.evaluation import plots
from hf_ftstrategies.pipeline.recipe import Recipe, run_recipe
from recipes.trec import RECIPE as TREC

RESULTS = Path(__file__).parent / "results" / "xu_tables.json"
SST2 = Recipe("sst2", "SST-2 phrases", {**TREC.presets, "dataset": "sst2"})
COMMON = [
    "--model", "minilm", "--learning_rate", "1e-4", "--max_length", "64", "--truncation", "head",
    "--evaluations", "1", "--load_best_model_at_end", "False", "--disable_tqdm", "True",
]  # fmt: skip
# recipe, options, the split that is measured
TASKS = {
    "trec": (TREC, ["--train_rows", "1000", "--validation_rows", "100", "--num_train_epochs", "4"], "test"),
    "sst2": (SST2, ["--train_rows", "5000", "--num_train_epochs", "2"], "validation"),
}
VARIANTS = {
    "plain": [],
    "SDA, K = 1": ["--self_distillation", "sda", "--teacher_size", "1"],
    "SDA, K = 3": ["--self_distillation", "sda", "--teacher_size", "3"],
    "SDA, K = 5": ["--self_distillation", "sda", "--teacher_size", "5"],
    "SDV, K = 3": ["--self_distillation", "sdv", "--teacher_size", "3"],
    "self-ensemble of all": ["--self_ensemble", "se"],
    "self-ensemble since half": ["--self_ensemble", "se", "--ensemble_start", "0.5"],
    "mixout 0.5": ["--mixout", "0.5"],
    "pre-trained decay 0.1": ["--pretrained_weight_decay", "0.1"],
}


def run(task: str, variant: str, data_root: str, seed: int, options: list[str]) -> dict:
    """One run, and what it took."""
    recipe, _, split = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--output_dir", f"{folder}/out", "--data_root", data_root, "--seed", str(seed)]
        results = run_recipe(recipe, [*options, *where])
    kept = ("accuracy", "macro_f1", "loss", "ece")
    scores = {name: results["metrics"][split][name] for name in kept if name in results["metrics"][split]}
    facts = {"task": task, "variant": variant, "seed": seed, "options": options, "split": split, "scores": scores}
    return facts | {name: results[name] for name in ("time", "peak_memory_mib", "versions", "hardware")}


def by_variant(runs: list[dict], task: str) -> dict[str, dict[int, float]]:
    """Accuracy of each variant by seed."""
    scores: dict[str, dict[int, float]] = {}
    for one in runs:
        if one["task"] == task:
            scores.setdefault(one["variant"], {})[one["seed"]] = one["scores"]["accuracy"]
    return scores


def draw(runs: list[dict]) -> Figure:
    """Difference to plain of every seed, and its mean."""
    tasks = [task for task in TASKS if by_variant(runs, task)]
    figure = Figure(figsize=(5.2 * len(tasks), 3.6), layout="constrained")
    for panel, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        scores = by_variant(runs, task)
        names = [name for name in scores if name != "plain"]
        for row, name in enumerate(names):
            both = [seed for seed in scores[name] if seed in scores["plain"]]
            points = [100 * (scores[name][seed] - scores["plain"][seed]) for seed in both]
            panel.plot(points, [row] * len(points), "o", color=plots.FAINT, markersize=5, alpha=0.7)
            panel.plot([sum(points) / len(points)] * 2, [row - 0.3, row + 0.3], color=plots.BLUE, linewidth=3)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_yticks(range(len(names)), names)
        panel.invert_yaxis()
        panel.set_xlabel("accuracy above plain, points")
        panel.set_title(f"{task}: each seed, and the mean")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    wanted = []
    for task, seed, (variant, own) in product(given.tasks, given.seeds, VARIANTS.items()):
        options = [*COMMON, *TASKS[task][1], *own]
        known = {"task": task, "seed": seed, "options": options}
        wanted.append((known, partial(run, task, variant, given.data_root, seed, options)))
    runs = complete(RESULTS, "python -m benchmarks.xu_tables --data_root DATA", wanted)
    plots.save(draw(runs), RESULTS.with_suffix(".png"))
    for task in given.tasks:
        print(as_table(task, by_variant(runs, task), "plain"))


if __name__ == "__main__":
    main()
