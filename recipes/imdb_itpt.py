"""IMDb film reviews, 2 classes: further pre-training on its own texts (ITPT), then fine-tuning; Sun et al. 2019.

Published test error with bert-base-uncased: 4.37 % after 100,000 steps of within-task further pre-training,
5.40 % without (table 6).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/imdb_itpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/imdb_itpt.py

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000`. Several nodes: docs/further_pretraining.md. The same command again goes on after an interruption.

With the 50,000 unlabelled reviews too: `--unlabelled True`. Error against the steps of the pre-training (figure 3 of
the paper): `--fine_tune_at 10k,20k,50k`.

The large model (table 8: 4.21 %): `--model bert-large-uncased --pretraining_batch_size 24
--pretraining_steps 120000`, on devices with little memory `--pretraining_device_batch_size 6
--per_device_train_batch_size 6`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="imdb_itpt",
    title="IMDb film reviews, further pre-trained on them",
    published="test error 4.37 % with bert-base-uncased after 100,000 steps of further pre-training (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "imdb", "further_pretraining": "within_task"},
)

if __name__ == "__main__":
    main(RECIPE)
