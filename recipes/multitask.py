"""Four tasks together, then one of them: multi-task fine-tuning of Sun et al. 2019, section 5.5 and table 7.

Published test error with bert-base-uncased (MFiT-FiT): IMDb 5.36 %, Yelp polarity 2.19 %, AG's News 5.20 %, DBpedia
0.68 %; further pre-trained across domains before (CDPT-MFiT-FiT): 4.96 %, 2.06 %, 5.13 %, 0.67 %.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/multitask.py --target imdb
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/multitask.py --target ag_news --preset cdpt_mfit

`--target` is one of imdb, yelp_polarity, ag_news, dbpedia14k; `--preset` is mfit (default) or cdpt_mfit. The model with
all heads is left in `OUTPUT/multitask`, with a card of its own, and can be pushed from there. The paper fine-tunes on
the target "with a lower learning rate" and does not say which: 1e-5 here.

Other tasks, a part of the rows of each, the demo model: `--multitask trec,banking77 --dataset trec --train_rows 2000
--model minilm --data_root DATA`.
"""

import sys

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main, take_option

TASKS = ("imdb", "yelp_polarity", "ag_news", "dbpedia14k")
PRESETS = {
    "mfit": {},
    "cdpt_mfit": {"further_pretraining": "cross_domain"},
}
PUBLISHED = {
    "mfit": ("5.36 %", "2.19 %", "5.20 %", "0.68 %"),
    "cdpt_mfit": ("4.96 %", "2.06 %", "5.13 %", "0.67 %"),
}


def recipe(target: str, preset: str) -> Recipe:
    """The recipe that ends with one of the tasks."""
    error = PUBLISHED[preset][TASKS.index(target)]
    together = {"multitask": ",".join(TASKS), "multitask_learning_rate": 2e-5, "learning_rate": 1e-5}
    return Recipe(
        name=f"{target}_{preset}",
        title="Several tasks together, then one of them",
        presets={**SUN_2019, **together, **PRESETS[preset], "dataset": target},
        published=f"test error {error} with bert-base-uncased (Sun et al. 2019, table 7)",
        script=f"multitask.py --target {target} --preset {preset}",
    )


RECIPE = recipe("imdb", "mfit")

if __name__ == "__main__":
    target, argv = take_option(sys.argv[1:], "--target", TASKS, "imdb")
    preset, argv = take_option(argv, "--preset", tuple(PRESETS), "mfit")
    main(recipe(target, preset), argv)
