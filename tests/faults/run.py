"""A training that can be killed anywhere and started again by the same command line: `python run.py OUT`."""

import re
import sys
from pathlib import Path

from hf_ftstrategies import StrategyTrainer
from hf_ftstrategies.pipeline.output import newest_complete_checkpoint
from tests.tiny import arguments, rows, tiny_bert

STEPS = 42
COMPOSED = {
    "num_train_epochs": 7,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "layer_decay": 0.9,
    "lr_schedule": "slanted_triangular",
    "reinit_layers": 1,
    "unfreezing": "gradual",
    "unfreeze_every": 0.15,
    "weight_decay": 0.1,
    "self_distillation": "sda",
    "teacher_size": 3,
    "self_ensemble": "se",
    "save_strategy": "steps",
    "save_steps": 1,
    "save_total_limit": 3,
}


def step_of(checkpoint: str | Path) -> int:
    return int(re.fullmatch(r"checkpoint-(\d+)", Path(checkpoint).name)[1])


if __name__ == "__main__":
    out = Path(sys.argv[1])
    trainer = StrategyTrainer(tiny_bert(), arguments(out, **COMPOSED), train_dataset=rows())
    trainer.train(resume_from_checkpoint=newest_complete_checkpoint(out))
    trainer.save_model(out / "final")
    trainer.save_state()
