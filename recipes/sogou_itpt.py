"""Sogou news, 6 classes, Chinese: further pre-training on its own texts (ITPT), then fine-tuning; Sun et al. 2019.

Published test error with bert-base-chinese: 1.93 % after 100,000 steps of within-task further pre-training,
2.43 % without (table 6).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/sogou_itpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/sogou_itpt.py

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000`. Several nodes: docs/further_pretraining.md. The same command again goes on after an interruption.

There is no copy on the Hub that loads without running code: put `sogou/train.parquet` and `sogou/test.parquet`
(columns text, label) into a `--data_root`. Sentences end at the Chinese marks (`--corpus_language zh`).
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="sogou_itpt",
    title="Sogou news, further pre-trained on it",
    published="test error 1.93 % with bert-base-chinese after 100,000 steps of further pre-training (Sun et al. 2019)",
    presets={
        **SUN_2019,
        "model": "bert-base-chinese",
        "dataset": "sogou",
        "further_pretraining": "within_task",
        "corpus_language": "zh",
    },
)

if __name__ == "__main__":
    main(RECIPE)
