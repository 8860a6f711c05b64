"""When a run cannot go on: signals, losses that are no numbers, full memory, full disks. What is done is not lost."""

from __future__ import annotations

import errno
import json
import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_ftstrategies.pipeline.output import newest_complete_checkpoint
from hf_ftstrategies.trainer import StrategyTrainer

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
# as the system, safetensors and torch.save say it
_DISK_FULL = ("No space left", "os error 28", "unexpected pos", "iostream error")


class RunStopped(Exception):
    """A run cannot go on, for a known reason; `status` is the exit status that a command should have."""

    status = 1


class Terminated(KeyboardInterrupt):
    """SIGTERM, as an exception that no `except Exception` holds up."""

    status = 128 + signal.SIGTERM


class SaveOnSignal(TrainerCallback):
    """SIGTERM or Ctrl-C: end the step, save a checkpoint, raise `Terminated` or `KeyboardInterrupt` that says what to
    do next. A second signal ends at once.

    Several processes stop after the same step, whichever of them got the signal.
    """

    def __init__(self):
        self._received = self._agreed = 0  # by this process; by all of them
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """From now on signals wait; outside the main thread Python does not allow it."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}

    def release(self) -> None:
        """Signals mean what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _receive(self, number, frame):
        self._received = number
        self.release()
        name = signal.Signals(number).name
        Console(stderr=True).print(f"\n{name}: a checkpoint is saved after this step; once more to stop at once.")

    def on_step_end(self, args, state, control, **kwargs):
        """Ask for a checkpoint, if any process was told to stop."""
        self._agreed = self._received
        if args.world_size > 1:
            received = torch.tensor(self._received, device=args.device)
            torch.distributed.all_reduce(received, torch.distributed.ReduceOp.MAX)
            self._agreed = int(received)
        control.should_save |= self._agreed > 0

    def on_save(self, args, state, control, **kwargs):
        """It is on the disk."""
        self._stop(self._agreed, args.output_dir)

    def finish(self, folder: str) -> None:
        """A signal that came after the last step has not been obeyed yet."""
        self._stop(self._received, folder)

    def _stop(self, number: int, folder: str) -> None:
        if number:
            error = Terminated if number == signal.SIGTERM else KeyboardInterrupt
            raise error(f"Stopped by {signal.Signals(number).name}. {resume_hint(folder)}")


@contextmanager
def saving_on_signals(trainer: Trainer) -> Iterator[None]:
    """While a training runs in this block, signals end it as `SaveOnSignal` says."""
    callback = SaveOnSignal()
    trainer.add_callback(callback)
    callback.listen()
    try:
        yield
        callback.finish(trainer.args.output_dir)
    finally:
        callback.release()
        trainer.remove_callback(callback)


class StopAtBadLoss:
    """Put before a Trainer: a loss that is no finite number ends the training, and its batch is saved."""

    def training_step(self, model, inputs, *args, **kwargs):
        """`Trainer.training_step`, then a look at its loss."""
        batch = dict(inputs)
        loss = super().training_step(model, inputs, *args, **kwargs)
        if not math.isfinite(value := float(loss)):  # Trainer's own filter waits for it too
            raise RunStopped(self._describe_bad_loss(value, batch))
        return loss

    def _describe_bad_loss(self, value: float, batch: dict[str, Any]) -> str:
        step, rate = self.state.global_step + 1, self._get_learning_rate()
        file = Path(self.args.output_dir, f"bad_batch-{self.args.process_index}.safetensors")
        tensors = {n: t.detach().cpu().contiguous() for n, t in batch.items() if isinstance(t, torch.Tensor)}
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, file, {"facts": json.dumps({"step": step, "loss": str(value), "learning_rate": rate})})
        return (
            f"The loss of step {step} is {value}, at the learning rate {rate:.2g}. Its batch is in {file}. Give another"
            " --output_dir and a lower --learning_rate, a longer warm-up or --max_grad_norm 1; for --fp16, --bf16."
        )


class GuardedTrainer(StopAtBadLoss, StrategyTrainer):
    """`StrategyTrainer` as recipes use it."""


@contextmanager
def explained(args: TrainingArguments, folder: str | Path) -> Iterator[None]:
    """Turn what ends a run and has a known remedy into `RunStopped`; say at an interrupt what the next command does.

    Anything else is a bug and keeps its traceback.

    Args:
        args (`TrainingArguments`): Of the run.
        folder (`str` or `Path`): Of the run; its newest checkpoint is named.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if interrupt.args:  # it was said already
            raise
        raise KeyboardInterrupt(f"Interrupted. {_hint_below(folder)}") from interrupt
    except Exception as error:
        message = _remedy(error, args, folder)
        if message is None:
            raise
        raise RunStopped(f"{message} {_hint_below(folder)}") from error


def _remedy(error: Exception, args: TrainingArguments, folder: str | Path) -> str | None:
    text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    if isinstance(error, MemoryError) or any(known in str(error) for known in _OUT_OF_MEMORY):
        return (
            f"Out of memory: {text}. Lower --per_device_train_batch_size (now {args.per_device_train_batch_size}; with "
            "--global_batch_size the result stays the same), --per_device_eval_batch_size, --max_length, --max_chunks "
            "or --teacher_size, or give --gradient_checkpointing True."
        )
    numbers = (errno.ENOSPC, errno.EDQUOT)
    if getattr(error, "errno", None) in numbers or any(known in str(error) for known in _DISK_FULL):
        return (
            f"The disk of {str(folder)!r} is full: {text}. Make room, or lower --save_total_limit (it is "
            f"{args.save_total_limit})."
        )
    return None


def resume_hint(checkpoints: str | Path) -> str:
    """What the same command would do now.

    Args:
        checkpoints (`str` or `Path`): Folder of a Trainer's checkpoints.
    """
    checkpoint = newest_complete_checkpoint(checkpoints)
    if checkpoint is None:
        return "No checkpoint was saved yet: the same command begins anew."
    return f"The same command goes on from {checkpoint}."


def _hint_below(folder: str | Path) -> str:
    """The hint of the stage that was at work: the one whose folder of checkpoints changed last."""
    stages = [path for path in Path(folder).rglob("checkpoints") if path.is_dir()]
    return resume_hint(max(stages, key=lambda path: path.stat().st_mtime, default=folder))
