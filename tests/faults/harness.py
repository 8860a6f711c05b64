"""Start a training, kill it at a chosen moment, start it again, and compare what it leaves with one never killed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

from hf_ftstrategies.pipeline.output import newest_complete_checkpoint
from tests.faults import run

ROOT = Path(__file__).parents[2]
TIMEOUT = 200  # seconds, for a machine that others use too
# What a checkpoint gets, in this order: a kill comes when one of them has just begun to exist.
FILES = ("", "model.safetensors", "optimizer.pt", "scheduler.pt", "strategies.safetensors", "strategies.json")
FILES += ("rng_state.pth",)


@contextmanager
def started(out: Path, settings: dict) -> Iterator[subprocess.Popen]:
    """The training, in a process of its own; what it prints goes to a file beside its folder."""
    command = [sys.executable, run.__file__, out, json.dumps(settings)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (
        out.with_suffix(".log").open("ab") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        yield process


def finish(out: Path, settings: dict) -> None:
    """Let it run to its end."""
    with started(out, settings) as process:
        if process.wait(TIMEOUT) != 0:
            raise RuntimeError(out.with_suffix(".log").read_text()[-4000:])


def kill_once(out: Path, settings: dict, step: int, draw: random.Random) -> dict:
    """Start it, and kill it while it writes the checkpoint of a step, or at any moment of the steps after it.

    Returns:
        `dict`: `moment`; `killed`: False if the training ended before; `torn`: whether the newest checkpoint was not
        written to its end; `whole`: the step of the newest that was, or 0.
    """
    file = draw.choice((None, *FILES) if is_saved_at_every_step(settings) else (None,))
    told, delay = out.with_suffix(".step"), draw.uniform(0, 0.2)
    told.unlink(missing_ok=True)
    with started(out, settings) as process:
        if file is None:
            wait_until(process, lambda: told.exists() and int(told.read_text() or 0) >= step)
            time.sleep(delay)
        else:
            wait_until(process, (out / f"checkpoint-{step}" / file).exists)
        process.send_signal(signal.SIGKILL)
        killed = process.wait(TIMEOUT) == -signal.SIGKILL
    newest = max((step_of(path) for path in out.glob("checkpoint-*")), default=0)
    path = newest_complete_checkpoint(out)
    whole = 0 if path is None else step_of(path)
    moment = (
        f"{1000 * delay:.0f} ms after step {step}" if file is None else f"checkpoint {step}, {file or 'its folder'}"
    )
    return {"moment": moment, "killed": killed, "torn": newest > whole, "whole": whole}


def is_saved_at_every_step(settings: dict) -> bool:
    """Where evaluations are spaced evenly, checkpoints come with them."""
    return "evaluations" not in settings


def wait_until(process: subprocess.Popen, is_true: Callable[[], bool]) -> None:
    """Wait, but not for a process that has ended."""
    deadline = time.monotonic() + TIMEOUT
    while process.poll() is None and not is_true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing happened in {TIMEOUT} s")
        time.sleep(0.0005)


def step_of(checkpoint: str | Path) -> int:
    """The step that a checkpoint is of."""
    return int(re.fullmatch(r"checkpoint-(\d+)", Path(checkpoint).name)[1])


def left_by(out: Path) -> dict:
    """All that a training ends with: weights, optimizer, schedule, random streams, strategies, history."""
    checkpoint = Path(newest_complete_checkpoint(out))
    state = json.loads((out / "trainer_state.json").read_text())
    logs = [log for log in state["log_history"] if "train_runtime" not in log]  # Trainer's summary is of one process
    history = [{k: v for k, v in log.items() if not k.endswith(("runtime", "per_second"))} for log in logs]
    tensors = {file.name: load_file(file) for file in checkpoint.glob("*.safetensors")}
    pickled = {
        name: torch.load(checkpoint / name, weights_only=False)
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")
    }
    strategies = checkpoint / "strategies.json"
    return {
        "weights": load_file(out / "final" / "model.safetensors"),
        "checkpoint": (checkpoint.name, tensors),
        "optimizer, schedule, random streams": pickled,
        "strategies": json.loads(strategies.read_text()) if strategies.exists() else None,
        "history": history,
        "best": (state["best_metric"], state["best_global_step"]),
    }


def same(a, b) -> bool:
    """Equal to the bit, however deep."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    equal = a == b
    return equal if isinstance(equal, bool) else bool(equal.all())


def differences(straight: Path, killed: Path) -> list[str]:
    """What of the two is not the same."""
    one, other = left_by(straight), left_by(killed)
    return [name for name in one if not same(one[name], other[name])]
