"""Yelp reviews, 2 classes: fine-tuning as Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?".

Published test error with bert-base-uncased: 2.28 %.
560,000 reviews of 177 tokens on average.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/yelp_polarity.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/yelp_polarity.py

The batch is 24 however many processes share it. A part of the rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.

The large model (Sun et al., table 8: 2.04 %): `--model bert-large-uncased`, on devices with little memory
`--per_device_train_batch_size 6`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="yelp_polarity",
    title="Yelp reviews, 2 classes",
    published="test error 2.28 % with bert-base-uncased (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "yelp_polarity"},
)

if __name__ == "__main__":
    main(RECIPE)
