"""A training killed twice, at any moment, ends with the bits of one that was never killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import TrainerCallback

from hf_ftstrategies import StrategyTrainer
from tests.faults import run
from tests.tiny import arguments, equal, rows, snapshot, tiny_bert

ROOT = Path(__file__).parents[2]
TIMEOUT = 200  # seconds, for a machine that others use too
# What a checkpoint gets, in this order: a kill comes when one of them has just begun to exist.
FILES = ("", "model.safetensors", "optimizer.pt", "scheduler.pt", "strategies.safetensors", "strategies.json")
FILES += ("rng_state.pth",)


@contextmanager
def started(out: Path):
    """The training, in a process of its own; what it prints goes to a file beside its folder."""
    command, environment = [sys.executable, run.__file__, out], {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (
        out.with_suffix(".log").open("ab") as log,
        subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log) as process,
    ):
        yield process


def finish(out: Path) -> None:
    with started(out) as process:
        assert process.wait(TIMEOUT) == 0, out.with_suffix(".log").read_text()[-4000:]


def kill_when_it_appears(process: subprocess.Popen, path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not path.exists():
        assert process.poll() is None, f"the training ended before {path} was there"
        assert time.monotonic() < deadline, f"no {path} after {TIMEOUT} s"
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(TIMEOUT) == -signal.SIGKILL


def logged(out: Path) -> list[tuple]:
    history = json.loads((out / "trainer_state.json").read_text())["log_history"]
    return [(log["step"], log["loss"], log["grad_norm"]) for log in history if "loss" in log]


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    out = tmp_path_factory.mktemp("faults") / "straight"
    finish(out)
    return out


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_twice_and_resumed_to_equal_bits(never_killed, tmp_path, seed):
    moments, killed = random.Random(seed), tmp_path / "killed"
    for step in (moments.randrange(2, 20), moments.randrange(22, run.STEPS)):
        with started(killed) as process:
            kill_when_it_appears(process, killed / f"checkpoint-{step}" / moments.choice(FILES))
        assert run.step_of(run.newest_complete_checkpoint(killed)) >= step - 1
    finish(killed)
    weights = [load_file(out / "final" / "model.safetensors") for out in (never_killed, killed)]
    assert equal(*weights)
    assert len(logged(never_killed)) == run.STEPS
    assert logged(never_killed) == logged(killed)


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
