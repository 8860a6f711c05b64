"""Question texts: further pre-training in the domain (IDPT), then fine-tuning; Sun et al. 2019.

Pre-trains on TREC and Yahoo! Answers, fine-tunes on trec.
Published test errors with bert-base-uncased (table 6; without further pre-training): TREC 2.20 % (2.80),
Yahoo! Answers 21.86 % (22.42).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/question_idpt.py
    accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
        recipes/question_idpt.py

A small run on CPUs: `--model minilm --data_root DATA --corpus_rows 4000 --pretraining_steps 400 --train_rows 2000
--test_rows 2000`. Several nodes: docs/further_pretraining.md. The same command again goes on after an interruption.

Another set of the domain after the same pre-training, without doing it again: its own recipe with
`--model outputs/question_idpt/pretraining/step-100000`. Only a part of the sets at hand: name
them, `--further_pretraining trec,...`.
"""

from hf_ftstrategies.pipeline.presets import SUN_2019
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="question_idpt",
    title="trec, further pre-trained on question texts",
    presets={**SUN_2019, "dataset": "trec", "further_pretraining": "in_domain"},
)

if __name__ == "__main__":
    main(RECIPE)
