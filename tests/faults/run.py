"""A training that can be killed anywhere and started again by the same command line: `python run.py OUT`."""

import json
import re
import sys
from pathlib import Path

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from hf_ftstrategies import StrategyTrainer
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
    "save_strategy": "steps",
    "save_steps": 1,
    "save_total_limit": 3,
}


def newest_complete_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end; `trainer_state.json` is its last file."""
    newest = get_last_checkpoint(folder) if folder.is_dir() else None
    if newest is None or _is_complete(Path(newest)):
        return newest
    complete = [path for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if _is_complete(path)]
    return str(max(complete, key=step_of)) if complete else None


def _is_complete(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, json.JSONDecodeError):  # not there yet, or torn
        return False
    return True


def step_of(checkpoint: str | Path) -> int:
    return int(re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", Path(checkpoint).name)[1])


if __name__ == "__main__":
    out = Path(sys.argv[1])
    trainer = StrategyTrainer(tiny_bert(), arguments(out, **COMPOSED), train_dataset=rows())
    trainer.train(resume_from_checkpoint=newest_complete_checkpoint(out))
    trainer.save_model(out / "final")
    trainer.save_state()
