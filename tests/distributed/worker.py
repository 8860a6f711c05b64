"""One process of a training: `python -m torch.distributed.run --nproc_per_node 2 worker.py RUNS.json OUT`.

RUNS.json holds a list of runs, done one after the other because starting a process takes far longer than any
of them. Of each run and rank the final weights and what strategies kept go to OUT/NAME-RANK.safetensors, and what
happened in each step (loss, gradient norm, depths that moved) to OUT/NAME-RANK.json.
"""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback

from hf_ftstrategies import (
    LayerMap,
    MultiTaskClassifier,
    MultiTaskClassifierConfig,
    MultiTaskRows,
    StrategyTrainer,
)
from tests.tiny import arguments, rows, snapshot, tiny_bert

TRAINERS = {"Trainer": Trainer, "StrategyTrainer": StrategyTrainer}


class Recorder(TrainerCallback):
    """Depths that moved in each step, on this rank, and what strategies kept; ends the training after step `stop`."""

    def __init__(self, stop: int | None):
        self.stop, self.moved, self.kept = stop, [], {}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.map, self.before = LayerMap.from_model(model), snapshot(model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        before, self.before = self.before, snapshot(model)
        moved = {self.map.depth_of(n) for n, w in self.before.items() if not torch.equal(w, before[n])}
        self.moved.append(sorted(moved))
        states = {s.name: s.state_dict() for s in self.strategies}
        self.kept = {
            f"{n}/{k}": v.clone() for n, s in states.items() for k, v in s.items() if isinstance(v, torch.Tensor)
        }
        control.should_training_stop |= state.global_step == self.stop


def several_tasks(count: int) -> tuple[MultiTaskClassifier, MultiTaskRows]:
    """Two tasks, three blocks of the one and two of the other in each epoch, and a head that none trains."""
    tasks = {"large": {"num_labels": 3}, "small": {"num_labels": 4}, "idle": {"num_labels": 2}}
    config = MultiTaskClassifierConfig(text_config=tiny_bert(dropout=0.0).config, tasks=tasks, classifier_dropout=0.0)
    torch.manual_seed(0)
    both = {"large": rows(count * 3 // 5), "small": rows(count * 2 // 5, seed=2)}
    return MultiTaskClassifier(config), MultiTaskRows(both, tasks, block_size=8)


def train(
    out: Path,
    name: str,
    settings: dict,
    trainer: str = "StrategyTrainer",
    stop: int | None = None,
    resume: bool = False,
    folder: str | None = None,
    count: int = 40,
    multitask: bool = False,
) -> None:
    """Train a tiny BERT without dropout on some rows in order, and write down what happened on this rank."""
    recorder = Recorder(stop)
    model, train_rows = several_tasks(count) if multitask else (tiny_bert(dropout=0.0), rows(count))
    trainer = TRAINERS[trainer](
        model,
        arguments(out / (folder or name), train_sampling_strategy="sequential", **settings),
        train_dataset=train_rows,
        eval_dataset=rows(8, seed=1),
        callbacks=[recorder],
    )
    recorder.strategies = getattr(trainer, "strategies", [])
    trainer.train(resume_from_checkpoint=resume)
    logs = [log for log in trainer.state.log_history if "loss" in log]
    facts = {
        "processes": trainer.args.world_size,
        "loss": [log["loss"] for log in logs],
        "grad_norm": [log["grad_norm"] for log in logs],
        "moved": recorder.moved,
        "gap": [log["teacher_student_gap"] for log in logs if "teacher_student_gap" in log],
        "evaluations": [
            log for log in trainer.state.log_history if "eval_runtime" in log or "eval_ensemble_runtime" in log
        ],
    }
    own = out / f"{name}-{trainer.args.process_index}"
    own.with_suffix(".json").write_text(json.dumps(facts))
    weights = snapshot(trainer.model) | recorder.kept
    save_file({n: w.contiguous() for n, w in weights.items()}, own.with_suffix(".safetensors"))


if __name__ == "__main__":
    for run in json.loads(Path(sys.argv[1]).read_text()):
        train(Path(sys.argv[2]), **run)
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()
