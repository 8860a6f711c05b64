"""IMDb with few labels, with and without further pre-training on all its texts; Sun et al. 2019, figure 4.

Published test error with bert-base-uncased and 0.4 % of the labels (100 reviews): 9.23 % with, 17.26 % without.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/few_shot_itpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/few_shot_itpt.py --shares 0.004,0.02,0.1,1

First all labels after the further pre-training (as recipes/imdb_itpt.py), then every share of them twice: from the
pre-trained model and from the original one. The smaller set of labels is always a part of the larger. Writes
`few_shot.json` and `few_shot.png` beside the runs; what is finished is not repeated.

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000 --shares 0.05,0.2,1`; the shares are then of the 2,000. Several nodes: docs/further_pretraining.md.
"""

import json
import sys
from pathlib import Path

from hf_ftstrategies.evaluation.plots import save
from hf_ftstrategies.evaluation.pretraining_plots import plot_few_shot
from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main, take_option

RECIPE = Recipe(
    name="few_shot_itpt",
    title="IMDb with few labels, further pre-trained on its texts",
    presets={**SUN_2019, "dataset": "imdb", "further_pretraining": "within_task"},
)


def compare(argv: list[str], shares: list[float], recipe: Recipe = RECIPE) -> list[dict]:
    """Fine-tune on shares of the labels, from the original and from the further pre-trained model.

    Args:
        argv (`list[str]`): Options of the run with all labels.
        shares (`list[float]`): Of the labels, above 0, at most 1.
        recipe (`Recipe`, *optional*): The run with all labels.

    Returns:
        `list[dict]`: Share, training rows, whether further pre-trained, metrics of each split.
    """
    whole = main(recipe, argv)
    _, args, options, _ = recipe.parse(argv)
    folder = Path(args.output_dir)
    pretrained = folder / "pretraining" / f"step-{options.pretraining_steps}"
    points = []
    for share in sorted(shares):
        rows = max(1, round(share * whole["dataset"]["splits"]["train"]))
        for name, model in (("without", []), ("with", ["--model", str(pretrained)])):
            own = ["--further_pretraining", "none", "--train_rows", str(rows)]
            results = main(recipe, [*argv, *own, *model, "--output_dir", str(folder / f"{rows}_labels_{name}")])
            point = {"share": share, "rows": rows, "further_pretrained": name == "with"}
            points.append(point | {"metrics": {split: m["accuracy"] for split, m in results["metrics"].items()}})
    if args.process_index == 0:
        (folder / "few_shot.json").write_text(json.dumps(points, indent=2) + "\n", encoding="utf-8")
        save(plot_few_shot(points), folder / "few_shot.png")
    return points


if __name__ == "__main__":
    shares, argv = take_option(sys.argv[1:], "--shares", None, "0.004,0.008,0.02,0.05,0.1,0.2,1")
    compare(argv, [float(share) for share in shares.split(",")])
