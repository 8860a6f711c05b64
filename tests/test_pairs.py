"""Every strategy with every other: 6 steps, saved, and resumed from the middle to equal bits."""

from itertools import combinations
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_ftstrategies import StrategyTrainer
from tests.strategies_at_work import STRATEGIES, joined
from tests.tiny import arguments, equal, loaded_bert, rows, snapshot

STEPS, CUT = 6, 3
PAIRS = [
    pytest.param(settings, id=f"{a} + {b}")
    for a, b in combinations(STRATEGIES, 2)
    if (settings := joined(a, b)) is not None
]


def run(folder, resume=None, **settings):
    saved = {} if "evaluations" in settings else {"save_steps": CUT}
    settings = {"num_train_epochs": 1, "save_strategy": "steps", **saved, **settings}
    trainer = StrategyTrainer(
        loaded_bert(folder), arguments(folder / "out", **settings), train_dataset=rows(), eval_dataset=rows(8, seed=1)
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def tensors_of(trainer, step):
    """Everything of a checkpoint that the training goes on with."""
    folder = Path(trainer.args.output_dir, f"checkpoint-{step}")
    optimizer = torch.load(folder / "optimizer.pt")["state"]
    found = {f"{key}/{name}": value for key, state in optimizer.items() for name, value in state.items()}
    for file in folder.glob("*.safetensors"):  # strategies without tensors write none
        found |= {f"{file.stem}/{name}": value for name, value in load_file(file).items()}
    return found


def losses(trainer):
    return [(log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize("settings", PAIRS)
def test_a_pair_resumes_to_equal_bits(tmp_path, settings):
    straight = run(tmp_path, **settings)
    kept, ended, logged = tensors_of(straight, STEPS), snapshot(straight.model), losses(straight)
    resumed = run(tmp_path, resume=f"{straight.args.output_dir}/checkpoint-{CUT}", **settings)
    assert straight.state.global_step == resumed.state.global_step == len(logged) == STEPS
    assert [s.name for s in straight.strategies] == [s.name for s in resumed.strategies] != []
    assert equal(ended, snapshot(resumed.model))
    assert equal(kept, tensors_of(resumed, STEPS))
    assert logged == losses(resumed)
    loaded = AutoModelForSequenceClassification.from_pretrained(f"{resumed.args.output_dir}/checkpoint-{STEPS}")
    assert equal(snapshot(loaded), load_file(f"{resumed.args.output_dir}/checkpoint-{STEPS}/model.safetensors"))
