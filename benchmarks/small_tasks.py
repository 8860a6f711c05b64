"""Real small tasks with the demo model: CoLA, MRPC, RTE, STS-B and TREC, each against the majority baseline.

python -m benchmarks.small_tasks --data_root DATA [--tasks cola mrpc rte stsb trec] [--seed 42]

Writes benchmarks/results/small_tasks.json after every task; a task that is in it with the same options is not repeated.
MiniLM was trained as a sentence encoder; its card names no set of this list, but similar ones (Quora, SNLI, MNLI).
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.runs import complete
from hf_ftstrategies.pipeline.recipe import run_recipe
from recipes.glue import recipe as glue
from recipes.trec import RECIPE as TREC

RESULTS = Path(__file__).parent / "results" / "small_tasks.json"
TASKS = ("cola", "mrpc", "rte", "stsb", "trec")
OPTIONS = [
    "--model", "minilm", "--num_train_epochs", "3", "--learning_rate", "1e-4", "--evaluations", "3",
    "--train_sampling_strategy", "group_by_length", "--disable_tqdm", "True",
]  # fmt: skip


def run(task: str, data_root: str, seed: int) -> dict:
    """Fine-tune on one task; the facts of `results.json` that a reader wants."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = TREC if task == "trec" else glue(task, "zhang")
        where = ["--output_dir", f"{folder}/out", "--data_root", data_root, "--seed", str(seed)]
        results = run_recipe(recipe, [*OPTIONS, *where])
    metrics = {
        split: {name: value for name, value in scores.items() if name != "per_class"}
        for split, scores in results["metrics"].items()
    }
    kept = ("baseline", "selected", "time", "peak_memory_mib", "versions", "hardware")
    return {
        "task": task,
        "seed": seed,
        "options": OPTIONS,
        "metric": results["dataset"]["metric"],
        "splits": results["dataset"]["splits"],
        "metrics": metrics,
        **{name: results[name] for name in kept},
    }


def table(runs: list[dict]) -> str:
    """One row for each task."""
    lines = ["| task | metric | validation | test | majority baseline | minutes |", "|---|---|---|---|---|---|"]
    for one in runs:
        metric = one["metric"]
        test = f"{one['metrics']['test'][metric]:.3f}" if "test" in one["metrics"] else ""
        minutes = one["time"]["train_seconds"] / 60
        lines.append(
            f"| {one['task']} | {metric} | {one['metrics']['validation'][metric]:.3f} | {test} "
            f"| {one['baseline'][metric]:.3f} | {minutes:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    wanted = [
        ({"task": task, "seed": given.seed, "options": OPTIONS}, partial(run, task, given.data_root, given.seed))
        for task in given.tasks
    ]
    print(table(complete(RESULTS, "python -m benchmarks.small_tasks --data_root DATA", wanted)))


if __name__ == "__main__":
    main()
