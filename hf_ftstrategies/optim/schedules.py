"""Learning-rate schedules of the five works that Transformers does not have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from hf_ftstrategies.suggest import did_you_mean


def slanted_triangular(step: int, total_steps: int, cut_fraction: float = 0.1, ratio: float = 32) -> float:
    """Factor of the peak learning rate at `step` of the slanted triangular schedule.

    With `cut = floor(total_steps * cut_fraction)`:
    `p = step / cut` before the cut, then `p = 1 - (step - cut) / (cut * (1 / cut_fraction - 1))`;
    the factor is `(1 + p * (ratio - 1)) / ratio`.

    Args:
        step (`int`): Optimizer steps done, from 0.
        total_steps (`int`): Optimizer steps of the whole training.
        cut_fraction (`float`, *optional*, defaults to 0.1): Fraction of the training in which the rate rises.
        ratio (`float`, *optional*, defaults to 32): Peak rate divided by the lowest rate.

    Returns:
        `float`: factor in `[1 / ratio, 1]`.

    Raises:
        ValueError: `total_steps < 1`, `cut_fraction` outside (0, 1) or `ratio < 1`.

    Paper: Howard & Ruder 2018, section 3.2, equation 3.

    Differs: `cut` is at least 1 (the paper divides by 0 below `1 / cut_fraction` steps), and `p` is never
    negative (where `cut` was rounded down the equation ends below the lowest rate, even below 0).
    """
    _check_slanted_triangular(total_steps, cut_fraction, ratio)
    cut = max(1, math.floor(total_steps * cut_fraction))
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_fraction - 1))
    return (1 + max(0.0, p) * (ratio - 1)) / ratio


def _check_slanted_triangular(total_steps: int, cut_fraction: float, ratio: float) -> None:
    if total_steps < 1:
        raise ValueError(f"total_steps is {total_steps}: a schedule needs at least one step.")
    if not 0 < cut_fraction < 1:
        raise ValueError(f"stlr_cut_fraction is {cut_fraction}: give a fraction of training between 0 and 1.")
    if not 1 <= ratio < math.inf:  # nan too
        raise ValueError(f"stlr_ratio is {ratio}: peak rate / lowest rate is a number from 1.")


def bert_linear(step: int, total_steps: int, warmup_steps: int) -> float:
    """Factor of the peak learning rate at `step` of BERT's own schedule.

    `step / warmup_steps` in the warm-up, then `1 - step / total_steps`. The decay line starts at step 0, so
    the rate jumps down when the warm-up ends (from 1.0 to 0.9 with 10 % warm-up). Transformers' `linear`
    schedule has no such jump.

    Args:
        step (`int`): Optimizer steps done, from 0.
        total_steps (`int`): Optimizer steps of the whole training.
        warmup_steps (`int`): Optimizer steps of warm-up.

    Returns:
        `float`: factor in `[0, 1]`.

    Paper: Devlin et al. 2018, appendix A.2, as in the authors' optimizer code; Sun et al. 2019 call it
    slanted triangular.
    """
    if step < warmup_steps:
        return step / warmup_steps
    return max(0.0, 1 - step / total_steps)


@dataclass
class Schedule:
    """A schedule with its numbers, called by `LambdaLR` with the step.

    An object with primitive attributes rather than a closure: `LambdaLR` writes them into the checkpoint.

    Args:
        name (`str`): `"slanted_triangular"` or `"bert_linear"`.
        total_steps (`int`): Optimizer steps of the whole training.
        warmup_steps (`int`): Warm-up of `bert_linear`, in optimizer steps.
        cut_fraction (`float`): Of `slanted_triangular`.
        ratio (`float`): Of `slanted_triangular`.
    """

    name: str
    total_steps: int
    warmup_steps: int = 0
    cut_fraction: float = 0.1
    ratio: float = 32

    def __call__(self, step: int) -> float:
        """Factor of the peak learning rate at `step`."""
        if self.name == "slanted_triangular":
            return slanted_triangular(step, self.total_steps, self.cut_fraction, self.ratio)
        return bert_linear(step, self.total_steps, self.warmup_steps)

    def describe(self) -> str:
        """One line for the plan."""
        if self.name == "slanted_triangular":
            return f"slanted_triangular (cut_fraction {self.cut_fraction:g}, ratio {self.ratio:g})"
        return f"bert_linear (warm-up {self.warmup_steps} steps, with BERT's jump)"


SCHEDULES = ("slanted_triangular", "bert_linear")


def check_schedule(args) -> None:
    """Refuse schedule settings that contradict each other.

    Args:
        args (`StrategyTrainingArguments`): Of the run.

    Raises:
        ValueError: unknown name, or a second schedule asked for beside `lr_schedule`.
    """
    _check_slanted_triangular(1, args.stlr_cut_fraction, args.stlr_ratio)
    if args.lr_schedule is None:
        return
    if args.lr_schedule not in SCHEDULES:
        raise ValueError(
            f"lr_schedule is {args.lr_schedule!r}, known are {', '.join(SCHEDULES)}."
            f"{did_you_mean(args.lr_schedule, SCHEDULES)} Trainer's own schedules are chosen with lr_scheduler_type."
        )
    if args.lr_scheduler_type != "linear":
        raise ValueError(
            f"lr_schedule={args.lr_schedule!r} and lr_scheduler_type={str(args.lr_scheduler_type.value)!r} are "
            "two schedules for one run: give only one of them."
        )
    if args.lr_schedule == "slanted_triangular" and args.warmup_steps:
        raise ValueError(
            f"warmup_steps is {args.warmup_steps}, but slanted_triangular warms up by itself: "
            "set stlr_cut_fraction instead."
        )


def make_schedule(args, total_steps: int) -> Schedule:
    """The schedule that `lr_schedule` names, for a training of `total_steps`.

    Args:
        args (`StrategyTrainingArguments`): Of the run, `lr_schedule` not None.
        total_steps (`int`): Optimizer steps of the whole training.
    """
    return Schedule(
        name=args.lr_schedule,
        total_steps=total_steps,
        warmup_steps=args.get_warmup_steps(total_steps),
        cut_fraction=args.stlr_cut_fraction,
        ratio=args.stlr_ratio,
    )


def make_scheduler(optimizer: torch.optim.Optimizer, schedule: Schedule) -> torch.optim.lr_scheduler.LambdaLR:
    """A `LambdaLR` in which every parameter group follows `schedule` from its own peak rate."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, [schedule] * len(optimizer.param_groups))
