"""Yahoo! Answers, 10 classes: fine-tuning as Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?".

Published test error with bert-base-uncased: 22.42 %.
1,400,000 questions with answers, 131 tokens on average.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/yahoo_answers.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/yahoo_answers.py

The batch is 24 however many processes share it. A part of the rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="yahoo_answers",
    title="Yahoo! Answers, 10 classes",
    published="test error 22.42 % with bert-base-uncased (Sun et al. 2019)",
    presets={**SUN_2019, "dataset": "yahoo_answers"},
)

if __name__ == "__main__":
    main(RECIPE)
