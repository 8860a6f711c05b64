"""Sogou news, 6 classes, Chinese: fine-tuning as Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?".

Published test error with bert-base-chinese: 2.43 %.
54,000 articles of 737 tokens on average, 46 % longer than 512.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/sogou.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/sogou.py

The batch is 24 however many processes share it. A part of the rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.

There is no copy on the Hub that loads without running code: put `sogou/train.parquet` and `sogou/test.parquet`
(columns text, label) into a `--data_root`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="sogou",
    title="Sogou news, 6 classes, Chinese",
    published="test error 2.43 % with bert-base-chinese (Sun et al. 2019)",
    presets={
        **SUN_2019,
        "model": "bert-base-chinese",
        "dataset": "sogou",
    },
)

if __name__ == "__main__":
    main(RECIPE)
