"""Yahoo! Answers, 10 classes: further pre-training on its own texts (ITPT), then fine-tuning; Sun et al. 2019.

Published test error with bert-base-uncased: 22.38 % after 100,000 steps of within-task further pre-training,
22.42 % without (table 6).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/yahoo_itpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/yahoo_itpt.py

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000`. Several nodes: docs/further_pretraining.md. The same command again goes on after an interruption.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="yahoo_itpt",
    title="Yahoo! Answers, further pre-trained on it",
    published="test error 22.38 % with bert-base-uncased after 100,000 steps of further pre-training (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "yahoo_answers", "further_pretraining": "within_task"},
)

if __name__ == "__main__":
    main(RECIPE)
