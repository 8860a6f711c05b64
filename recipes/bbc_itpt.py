"""BBC News topics with MiniLM, further pre-trained on the articles: offline, in minutes.

The 1,725 articles that are not in the test part are the corpus: masked tokens and next sentences, 120 steps of 16
examples; then the fine-tuning of recipes/bbc_news.py on 250 labels. MiniLM has no heads for pre-training, so they start
fresh, and so few steps mostly train these heads. Whether it helped is in `report.html` and model_cards/bbc_itpt.md.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        --num_cpu_threads_per_process 2 recipes/bbc_itpt.py

More of it: `--pretraining_steps 1000`; with the test texts too: `--transductive True`, which the card then states.
"""

from hf_ftstrategies.pipeline.presets import BBC_NEWS
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="bbc_itpt",
    title="BBC News topics, further pre-trained on the articles",
    presets={
        **BBC_NEWS,
        "further_pretraining": "within_task",
        "duplication_factor": 1,
        "pretraining_steps": 120,
        "pretraining_warmup_steps": 0.1,
        "pretraining_batch_size": 16,
        "pretraining_learning_rate": 1e-4,
        "pretraining_save_steps": 60,
        "held_out_documents": 40,
    },
)

if __name__ == "__main__":
    main(RECIPE)
