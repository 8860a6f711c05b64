"""A tiny recipe with further pre-training; as a script it can be killed, or run by several processes.

python tests/pipeline/tiny_pretraining.py FOLDER [OPTIONS]: FOLDER holds `model` and `texts.csv` (see `prepare`).
"""

import random
import sys
from pathlib import Path

from transformers import BertForPreTraining, DistilBertConfig, DistilBertForMaskedLM

from hf_ftstrategies.pipeline.recipe import Recipe, run_recipe
from tests.data.tiny import WORDS, bert_with_mask
from tests.pipeline.tiny_run import TOPICS
from tests.tiny import tiny_bert


def prepare(folder: Path, heads: bool = False, rows: int = 60) -> Path:
    """A tiny BERT, with pre-training heads or without, and texts of three to six sentences."""
    tokenizer = bert_with_mask()
    model = tiny_bert(vocab_size=len(tokenizer), max_position_embeddings=64)
    if heads:
        model = BertForPreTraining(model.config)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    draw = random.Random(0)
    lines = ["text,label"]
    for row in range(rows):
        topic = row % 3
        words = WORDS[30 * topic : 30 * topic + 30]
        sentences = [" ".join(draw.choices(words, k=draw.randint(3, 7))) for _ in range(draw.randint(3, 6))]
        lines.append("<br />".join(sentences) + f",{TOPICS[topic]}")
    (folder / "texts.csv").write_text("\n".join(lines) + "\n")
    return folder


def distilbert(folder: Path) -> Path:
    """The same texts, with a model that knows no next sentences, in the place of the BERT."""
    tokenizer = bert_with_mask()
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, n_layers=2, n_heads=2, hidden_dim=20, max_position_embeddings=64
    )
    DistilBertForMaskedLM(config).save_pretrained(folder / "model")
    return folder


def recipe(folder: Path, **presets) -> Recipe:
    """Further pre-training within the task, and a short fine-tuning."""
    return Recipe(
        name="tiny_itpt",
        title="Tiny texts, further pre-trained on them",
        presets={
            "model": str(folder / "model"),
            "dataset": str(folder / "texts.csv"),
            "output_dir": str(folder / "out"),
            "max_length": 32,
            "truncation_head": 8,
            "num_train_epochs": 1,
            "learning_rate": 1e-2,
            "evaluations": 1,
            "load_best_model_at_end": True,
            "per_device_train_batch_size": 8,
            "logging_steps": 1,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "further_pretraining": "within_task",
            "pretraining_steps": 10,
            "pretraining_warmup_steps": 0.2,
            "pretraining_max_length": 32,
            "pretraining_batch_size": 8,
            "pretraining_learning_rate": 1e-2,
            "pretraining_save_steps": 2,
            "duplication_factor": 2,
            **presets,
        },
    )


if __name__ == "__main__":
    run_recipe(recipe(Path(sys.argv[1])), sys.argv[2:])
