"""A training killed twice, at any moment, ends with the bits of one that was never killed."""

import random

import pytest
from transformers import TrainerCallback

from hf_ftstrategies import StrategyTrainer
from tests.faults import run
from tests.faults.harness import differences, finish, is_saved_at_every_step, kill_once, left_by
from tests.strategies_at_work import joined
from tests.tiny import arguments, equal, rows, snapshot, tiny_bert

TAUGHT = joined("layerwise", "triangular", "re-init", "sda", "se") | {"unfreezing": "gradual", "unfreeze_every": 0.15}
HELD = joined("bert adam", "mixout", "pre-trained decay", "distance", "sdv", "early stopping")


@pytest.mark.parametrize("settings", [TAUGHT, HELD], ids=["taught", "held"])
def test_killed_twice_and_resumed_to_equal_bits(tmp_path, settings):
    draw, straight, killed = random.Random(len(settings)), tmp_path / "straight", tmp_path / "killed"
    finish(straight, settings)
    for step in (draw.randrange(2, 20), draw.randrange(22, run.STEPS)):
        kill = kill_once(killed, settings, step, draw)
        assert kill["killed"]
        assert kill["whole"] >= (step - 1 if is_saved_at_every_step(settings) else 0)
    finish(killed, settings)
    assert len([log for log in left_by(straight)["history"] if "loss" in log]) == run.STEPS
    assert differences(straight, killed) == []


class Interrupt(TrainerCallback):
    """Ctrl-C after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("resume", [True, False])
def test_nothing_stays_frozen_after_an_interrupt_in_the_same_process(tmp_path, resume):
    settings = {"unfreezing": "gradual", "frozen_in_eval_mode": True, "num_train_epochs": 5}
    settings |= {"save_strategy": "steps", "save_steps": 1} if resume else {}
    straight = StrategyTrainer(tiny_bert(), arguments(tmp_path / "straight", **settings), train_dataset=rows())
    straight.train()
    model, interrupt = tiny_bert(), Interrupt(8)
    trainer = StrategyTrainer(
        model, arguments(tmp_path / "cut", **settings), train_dataset=rows(), callbacks=[interrupt]
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert all(p.requires_grad for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())
    if resume:
        interrupt.step = None
        trainer.train(resume_from_checkpoint=True)
    else:
        model.load_state_dict(tiny_bert().state_dict())
        trainer = StrategyTrainer(model, arguments(tmp_path / "anew", **settings), train_dataset=rows())
        trainer.train()
    assert equal(snapshot(trainer.model), snapshot(straight.model))
