"""Fine-tuning with and without a little further pre-training: IMDb, TREC (MiniLM) and THUCNews titles (Chinese).

python -m benchmarks.further_pretraining --data_root DATA --chinese_model FOLDER [--tasks imdb trec thucnews]

With `--bert_adam` added the further pre-training has no bias correction, as in BERT's code.

Some hundred steps on a part of the texts: far below the 100,000 of Sun et al. 2019, and these models have no heads for
pre-training to begin with. Writes benchmarks/results/further_pretraining.json after every run; runs that are in it with
the same options are not repeated. The pictures go beside it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.runs import complete
from hf_ftstrategies.pipeline.recipe import Recipe, run_recipe
from recipes.imdb import RECIPE as IMDB
from recipes.trec import RECIPE as TREC

COMMAND = "python -m benchmarks.further_pretraining --data_root DATA --chinese_model FOLDER"
RESULTS = Path(__file__).parent / "results" / "further_pretraining.json"
THUCNEWS = Recipe("thucnews", "THUCNews titles, Chinese", {**TREC.presets, "dataset": "thucnews"})
COMMON = ["--learning_rate", "1e-4", "--evaluations", "1", "--disable_tqdm", "True"]
ITPT = [
    "--further_pretraining", "within_task", "--duplication_factor", "1", "--pretraining_warmup_steps", "0.1",
    "--pretraining_learning_rate", "1e-4", "--held_out_documents", "40",
]  # fmt: skip
BERT_ADAM = ["--pretraining_bias_correction", "False"]
TASKS = {
    "imdb": (
        IMDB,
        ["--train_rows", "1000", "--validation_rows", "300", "--test_rows", "1000", "--num_train_epochs", "2",
         "--max_length", "128", "--truncation_head", "32"],
        ["--corpus_rows", "4000", "--pretraining_steps", "300", "--fine_tune_at", "100,200",
         "--pretraining_batch_size", "16"],
    ),
    "trec": (
        TREC,
        ["--train_rows", "1000", "--validation_rows", "400", "--num_train_epochs", "4",
         "--max_length", "64", "--truncation", "head"],
        ["--pretraining_steps", "300", "--pretraining_max_length", "64"],
    ),
    "thucnews": (
        THUCNEWS,
        ["--train_rows", "2000", "--validation_rows", "500", "--test_rows", "2000", "--num_train_epochs", "2",
         "--max_length", "64", "--truncation", "head"],
        ["--pretraining_steps", "300", "--pretraining_max_length", "64", "--corpus_language", "zh",
         "--next_sentence", "False"],
    ),
}  # fmt: skip


def run(task: str, with_pretraining: bool, options: list[str], where: list[str], seed: int) -> dict:
    """One run of a task."""
    with tempfile.TemporaryDirectory() as folder:
        results = run_recipe(TASKS[task][0], [*options, *where, "--output_dir", f"{folder}/out", "--seed", str(seed)])
        picture = Path(folder, "out", "pictures", "starting_points.png")
        if picture.exists():
            shutil.copy(picture, RESULTS.with_name(f"further_pretraining_{task}.png"))
    facts = {"task": task, "further_pretrained": with_pretraining, "seed": seed, "options": options}
    facts["error"] = {split: 100 * (1 - m["accuracy"]) for split, m in results["metrics"].items()}
    facts["splits"] = results["dataset"]["splits"]
    before = results.get("further_pretraining")
    if before is not None:
        kept = ("corpus", "notes", "examples", "before", "after", "train_seconds", "curve", "fine_tuned_from")
        facts["pretraining"] = {name: before[name] for name in kept if name in before}
    return facts | {name: results[name] for name in ("time", "peak_memory_mib", "versions", "hardware")}


def as_table(runs: list[dict]) -> str:
    """Markdown, one line a run."""
    lines = ["| task | further pre-trained | validation error % | test error % |", "|---|---|---|---|"]
    for one in runs:
        steps = "no"
        if one["further_pretrained"]:
            options = one["options"]
            steps = one["pretraining"].get("fine_tuned_from", options[options.index("--pretraining_steps") + 1])
            steps = f"{steps} steps" + ", BERTAdam" * (BERT_ADAM[0] in options)
        error = one["error"]
        lines.append(f"| {one['task']} | {steps} | {error['validation']:.1f} | {error['test']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--chinese_model", help="folder of an encoder that reads Chinese")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["imdb", "trec", "thucnews"])
    parser.add_argument("--bert_adam", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    wanted = []
    for task in given.tasks:
        model = given.chinese_model if task == "thucnews" else "minilm"
        if model is None:
            parser.error("--tasks thucnews needs --chinese_model")
        where = ["--model", model, "--data_root", given.data_root]
        _, own, pretraining = TASKS[task]
        before = [*ITPT, *pretraining, *(BERT_ADAM if given.bert_adam else [])]
        for with_pretraining in (False, True):
            options = [*COMMON, *own, *(before if with_pretraining else [])]
            known = {"task": task, "seed": given.seed, "options": options}
            wanted.append((known, partial(run, task, with_pretraining, options, where, given.seed)))
    print(as_table(complete(RESULTS, COMMAND, wanted)))


if __name__ == "__main__":
    main()
