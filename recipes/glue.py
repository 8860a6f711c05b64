"""GLUE: one task or all of them, with the settings of Zhang et al. 2021 or Devlin et al. 2018.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/glue.py --task rte --preset zhang
    ... recipes/glue.py --task all --preset devlin

`--task` is one of cola, sst2, mrpc, rte, stsb, qqp, qnli, mnli, wnli, or all, which also prints their average;
`--preset` is zhang (default: BERT-large, 3 epochs, best of 10 evaluations; their halves of the development set with
`--split_scheme zhang`, their 1k subsets with `--train_rows 1000` besides) or devlin (BERT-base, no bias correction).
Published, Zhang et al. table 1, standard fine-tuning: RTE 69.5 ± 2.5 %, MRPC 90.8 ± 1.3 % (F1), STS-B 89.0 ± 0.6 %,
CoLA 63.0 ± 1.5 %.
Every other option as in all recipes: `--model minilm --data_root DATA --reinit_layers 1`.
"""

import sys

from hf_ftstrategies.pipeline.presets import DEVLIN_2018, ZHANG_2021
from hf_ftstrategies.pipeline.recipe import Recipe, main, take_option

TASKS = {
    "cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B", "qqp": "QQP", "qnli": "QNLI",
    "mnli": "MNLI", "wnli": "WNLI",
}  # fmt: skip
PUBLISHED = {
    "rte": "test accuracy 69.5 ± 2.5 %",
    "mrpc": "test F1 90.8 ± 1.3 %",
    "stsb": "test Spearman correlation 89.0 ± 0.6 %",
    "cola": "test Matthews correlation 63.0 ± 1.5 %",
}
_WITH = ", BERT-large, 20 seeds, half of the development set (Zhang et al. 2021, table 1)"
PRESETS = {"zhang": ZHANG_2021, "devlin": DEVLIN_2018}
PAPERS = {"zhang": "Zhang et al. 2021", "devlin": "Devlin et al. 2018"}


def recipe(task: str, preset: str) -> Recipe:
    """The recipe of one task."""
    return Recipe(
        name=f"glue_{task}",
        title=f"{TASKS[task]} of GLUE, fine-tuned as {PAPERS[preset]}",
        presets={**PRESETS[preset], "dataset": task},
        published=PUBLISHED[task] + _WITH if preset == "zhang" and task in PUBLISHED else "",
        script=f"glue.py --task {task} --preset {preset}",
    )


RECIPE = recipe("rte", "zhang")

if __name__ == "__main__":
    task, argv = take_option(sys.argv[1:], "--task", (*TASKS, "all"), "rte")
    preset, argv = take_option(argv, "--preset", tuple(PRESETS), "zhang")
    scores = {}
    for name in TASKS if task == "all" else (task,):
        results = main(recipe(name, preset), argv)
        scores[name] = results["metrics"]["validation"][results["dataset"]["metric"]]
    if len(scores) > 1:
        print(f"GLUE average of {len(scores)} tasks on validation: {sum(scores.values()) / len(scores):.4f}")
