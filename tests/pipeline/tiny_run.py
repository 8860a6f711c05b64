"""A tiny pre-trained folder and a tiny CSV, for recipes that run in seconds."""

import random

from hf_ftstrategies.pipeline.recipe import Recipe
from tests.data.tiny import bert
from tests.tiny import tiny_bert

TOPICS = ("fruit", "metal", "weather")


def pretrained(folder, tokenizer=None):
    """A tiny BERT with its tokenizer, as `save_pretrained` leaves it."""
    tokenizer = tokenizer or bert()
    tiny_bert(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def csv_file(path, rows=90, seed=0):
    """Texts of ten words; the label is told by the range that the words come from."""
    draw = random.Random(seed)
    lines = ["text,label"]
    for row in range(rows):
        topic = row % 3
        lines.append(
            " ".join(f"w{draw.randrange(30 * topic, 30 * topic + 30)}" for _ in range(10)) + f",{TOPICS[topic]}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe(tmp_path, **presets):
    """A recipe over both."""
    return Recipe(
        name="tiny",
        title="Tiny topics",
        presets={
            "model": str(pretrained(tmp_path / "model")),
            "dataset": str(csv_file(tmp_path / "topics.csv")),
            "output_dir": str(tmp_path / "out"),
            "max_length": 16,
            "truncation_head": 4,
            "num_train_epochs": 4,
            "learning_rate": 3e-2,
            "layer_decay": 0.9,
            "lr_schedule": "slanted_triangular",
            "unfreezing": "ulmfit",
            "unfreeze_every": "0.1",
            "reinit_layers": 1,
            "evaluations": 4,
            "load_best_model_at_end": True,
            "logging_steps": 1,
            "per_device_train_batch_size": 8,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            **presets,
        },
    )
