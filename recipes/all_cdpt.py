"""All seven English sets: further pre-training across domains (CDPT), then fine-tuning; Sun et al. 2019.

Published test errors with bert-base-uncased (table 6; without further pre-training): IMDb 5.18 % (5.40), Yelp polarity
1.97 % (2.28), Yelp full 29.20 % (30.06), TREC 2.80 % (2.80), Yahoo! Answers 21.94 % (22.42), AG's News 5.08 % (5.25),
DBpedia 0.67 % (0.71).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/all_cdpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/all_cdpt.py

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000`. Several nodes: docs/further_pretraining.md. The same command again goes on after an interruption.

Another set after the same pre-training: its own recipe with `--model outputs/all_cdpt/pretraining/step-100000`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="all_cdpt",
    title="IMDb, further pre-trained across domains",
    presets={**SUN_2019, "dataset": "imdb", "further_pretraining": "cross_domain"},
)

if __name__ == "__main__":
    main(RECIPE)
