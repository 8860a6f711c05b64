"""Yelp reviews, 5 classes: fine-tuning as Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?".

Published test error with bert-base-uncased: 30.06 %.
650,000 reviews of 179 tokens on average.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/yelp_full.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/yelp_full.py

The batch is 24 however many processes share it. A part of the rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.

The large model (Sun et al., table 8: 29.25 %): `--model bert-large-uncased`, on devices with little memory
`--per_device_train_batch_size 6`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="yelp_full",
    title="Yelp reviews, 5 classes",
    published="test error 30.06 % with bert-base-uncased (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "yelp_full"},
)

if __name__ == "__main__":
    main(RECIPE)
