"""MNLI, 3 classes: self-distillation (SDA), after Xu et al. 2020 (arXiv 2002.10345).

392,702 pairs; measured on the matched validation set, because GLUE's test labels are hidden.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/mnli_sda.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/mnli_sda.py

The preset is ours: the teacher is the mean of the last 3 students' parameters, its weight 1.5;
the rest ours: 128 tokens, 3 epochs, 2e-5. The batch is 32 however many processes share it.
Another teacher: `--teacher_size 5`; without, to compare: `--self_distillation none`. A part of the
rows, the demo model, a local copy:
`--train_rows 2000 --test_rows 2000 --model minilm --data_root DATA`.
"""

from hf_ftstrategies.pipeline.presets import SELF_DISTILLED_PAIRS
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="mnli_sda",
    title="MNLI, 3 classes, self-distilled",
    presets={**SELF_DISTILLED_PAIRS, "dataset": "mnli"},
)

if __name__ == "__main__":
    main(RECIPE)
