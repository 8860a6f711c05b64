"""A training that can be killed anywhere and started again by the same command line: `run.py OUT SETTINGS`."""

import json
import sys
from pathlib import Path

from transformers import TrainerCallback

from hf_ftstrategies import StrategyTrainer
from hf_ftstrategies.pipeline.output import checkpoint_to_resume
from tests.tiny import arguments, rows, tiny_bert

STEPS = 42
COMMON = {
    "num_train_epochs": 7,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "weight_decay": 0.1,
    "save_strategy": "steps",
    "save_steps": 1,
    "save_total_limit": 3,
}


class Tell(TrainerCallback):
    """Write the step that is done to OUT.step."""

    def on_step_end(self, args, state, control, **kwargs):
        Path(args.output_dir).with_suffix(".step").write_text(str(state.global_step))


if __name__ == "__main__":
    out, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    trainer = StrategyTrainer(
        tiny_bert(),
        arguments(out, **COMMON, **settings),
        train_dataset=rows(),
        eval_dataset=rows(8, seed=1),
        callbacks=[Tell()],
    )
    trainer.train(resume_from_checkpoint=checkpoint_to_resume(trainer.args))
    trainer.save_model(out / "final")
    trainer.save_state()
