"""Yelp reviews, 5 classes: self-distillation (SDA), after Xu et al. 2020 (arXiv 2002.10345).

650,000 reviews of 179 tokens on average. Two classes: `--dataset yelp_polarity`.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/yelp_sda.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/yelp_sda.py

The preset is ours: the teacher is the mean of the last 3 students' parameters, its weight 1.0;
the rest as in Sun et al. 2019, without layer decay. The batch is 24 however many processes share it.
Another teacher: `--teacher_size 5`; without, to compare: `--self_distillation none`. A part of the
rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.
"""

from hf_ftstrategies.pipeline.presets import SELF_DISTILLED
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="yelp_sda",
    title="Yelp reviews, 5 classes, self-distilled",
    presets={**SELF_DISTILLED, "dataset": "yelp_full"},
)

if __name__ == "__main__":
    main(RECIPE)
