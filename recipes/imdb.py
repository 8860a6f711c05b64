"""IMDb film reviews, 2 classes: fine-tuning as Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?".

Published test error with bert-base-uncased: 5.40 %.
25,000 reviews of 292 tokens on average, 12.7 % longer than 512.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/imdb.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/imdb.py

The batch is 24 however many processes share it. A part of the rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.

BERT-Feat (table 6: 6.79 %): `--feature_based True --layer_decay 1 --learning_rate 1e-3` (the paper gives no rate).

The large model (Sun et al., table 8: 4.86 %): `--model bert-large-uncased`, on devices with little memory
`--per_device_train_batch_size 6`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="imdb",
    title="IMDb film reviews, 2 classes",
    published="test error 5.40 % with bert-base-uncased (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "imdb"},
)

if __name__ == "__main__":
    main(RECIPE)
