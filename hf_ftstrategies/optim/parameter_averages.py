"""Means of the values that parameters had during a training: over a window, from the start, exponential.

All of them are used alike: `include` parameters before the step in which they begin to train, `update` after every
step (`offer` at evaluations), read the result as `copies`. A parameter that joins late was constant before, so its past
is its present value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hf_ftstrategies.optim.flat_parameters import FlatParameters

EXACT_SIZE = 10  # up to here the sum over the window costs no more than keeping a running sum


class ParameterWindow:
    """The values after each of the last `size` updates, in a ring.

    Args:
        size (`int`): Values to keep.
        with_initial (`bool`): Whether the values before the first update are the first of them.
        storage (`str`, *optional*, defaults to `"device"`): Of the ring, as of `FlatParameters`.
    """

    def __init__(self, size: int, with_initial: bool, storage: str = "device"):
        self.size = size
        self.count = int(with_initial)
        self._next = self.count % size
        self._ring = FlatParameters(size, storage)

    def include(self, named: Mapping[str, nn.Parameter]) -> None:
        """Add parameters, before they change for the first time."""
        self._ring.include(named)

    def update(self) -> None:
        """The present values take the place of the oldest."""
        self._ring.write(self._next)
        self.count = min(self.count + 1, self.size)
        self._next = (self._next + 1) % self.size

    def copies(self) -> Iterator[dict[str, torch.Tensor]]:
        """The values in the window by parameter name, one after the other, in no order of time."""
        return (self._ring.restored(row) for row in range(self.count))

    def state_dict(self) -> dict[str, Any]:
        """The ring, the place of the next value, and how many there are."""
        return {"count": self.count, "next": self._next, **self._ring.state_dict("window")}

    def load_state_dict(self, state: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
        """Take back what `state_dict` gave, for the parameters `named` of the model."""
        self.count, self._next = state["count"], state["next"]
        self._ring.load_state_dict("window", state, named)


class WindowMean(ParameterWindow):
    """The mean of the values in the window, or of those there are.

    Up to `EXACT_SIZE` the mean is computed anew after each update. Larger windows keep a running sum, which is
    computed anew once in every round of the ring, so that rounding errors do not pile up.

    Args:
        size (`int`), with_initial (`bool`), storage (`str`): As of `ParameterWindow`; the mean is like the parameters.
    """

    def __init__(self, size: int, with_initial: bool, storage: str = "device"):
        super().__init__(size, with_initial, storage)
        self._mean = FlatParameters(1)
        self._sum = FlatParameters(1) if size > EXACT_SIZE else None

    def include(self, named: Mapping[str, nn.Parameter]) -> None:
        """Add parameters, before they change for the first time."""
        super().include(named)
        self._mean.include(named)
        if self._sum is not None:
            known = len(self._sum.pieces)
            self._sum.include(named)
            for ring, (total,) in list(zip(self._ring.pieces, self._sum.pieces))[known:]:
                _reduce(torch.sum, ring[: self.count], total)

    def update(self) -> None:
        """The present values take the place of the oldest, in the mean too."""
        if self._sum is None:
            super().update()
            for ring, (mean,) in zip(self._ring.pieces, self._mean.pieces):
                _reduce(torch.mean, ring[: self.count], mean)
        else:
            self._update_sum()

    def _update_sum(self) -> None:
        row, is_full = self._next, self.count == self.size
        for ring, (total,) in zip(self._ring.pieces, self._sum.pieces):
            if is_full:
                total.sub_(ring[row].to(total.device))
        super().update()
        for ring, (total,), (mean,) in zip(self._ring.pieces, self._sum.pieces, self._mean.pieces):
            if self._next == 0:
                _reduce(torch.sum, ring, total)
            else:
                total.add_(ring[row].to(total.device))
            torch.div(total, self.count, out=mean)

    def copies(self) -> list[dict[str, torch.Tensor]]:
        """The mean by parameter name."""
        return [self._mean.row(0)]

    def state_dict(self) -> dict[str, Any]:
        """The window and its mean; of a large one also the sum, whose last bits depend on the past."""
        sums = {} if self._sum is None else self._sum.state_dict("sum")
        return super().state_dict() | self._mean.state_dict("mean") | sums

    def load_state_dict(self, state: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
        """Take back what `state_dict` gave, for the parameters `named` of the model."""
        super().load_state_dict(state, named)
        self._mean.load_state_dict("mean", state, named)
        if self._sum is not None:
            self._sum.load_state_dict("sum", state, named)


class BestMean:
    """The mean of the values that had the highest scores; of equal ones the older.

    Args:
        size (`int`): Values to keep.
        storage (`str`, *optional*, defaults to `"device"`): Of these values, as of `FlatParameters`.
    """

    def __init__(self, size: int, storage: str = "device"):
        self.scores: list[list[float]] = []  # of each value, with its number: the later the lower
        self._offered = 0
        self._ring = FlatParameters(size, storage)
        self._mean = FlatParameters(1)
        self._size = size

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.scores)

    def include(self, named: Mapping[str, nn.Parameter]) -> None:
        """Add parameters, before they change for the first time."""
        self._ring.include(named)
        self._mean.include(named)

    def offer(self, score: float) -> None:
        """The present values take a free place, or that of the lowest score if theirs is higher."""
        self._offered += 1
        is_full = self.count == self._size
        lowest = min(self.scores) if is_full else [-math.inf]
        if score > lowest[0]:  # never if it is not a number
            row = self.scores.index(lowest) if is_full else self.count
            self._ring.write(row)
            self.scores[row : row + 1] = [[score, -self._offered]]
            for ring, (mean,) in zip(self._ring.pieces, self._mean.pieces):
                _reduce(torch.mean, ring[: self.count], mean)

    def copies(self) -> list[dict[str, torch.Tensor]]:
        """The mean by parameter name; before the first score nothing."""
        return [self._mean.row(0) if self.scores else {}]

    def state_dict(self) -> dict[str, Any]:
        """The values, their scores and their mean."""
        values = self._ring.state_dict("best") | self._mean.state_dict("mean")
        return {"scores": self.scores, "offered": self._offered, **values}

    def load_state_dict(self, state: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
        """Take back what `state_dict` gave, for the parameters `named` of the model."""
        self.scores, self._offered = [list(score) for score in state["scores"]], state["offered"]
        self._ring.load_state_dict("best", state, named)
        self._mean.load_state_dict("mean", state, named)


class MovingAverage:
    """An average that moves towards the present values: average += weight * (present - average).

    Args:
        weight (`Callable[[int], float]`): Weight of the present values in the n-th update, n = 1, 2, ...:
            `mean_weight` or `ema_weight`.
    """

    def __init__(self, weight: Callable[[int], float]):
        self.count = 0
        self._weight = weight
        self._average = FlatParameters(1)

    def include(self, named: Mapping[str, nn.Parameter]) -> None:
        """Add parameters, before they change for the first time."""
        self._average.include(named)

    def update(self) -> None:
        """Move."""
        self.count += 1
        average = list(self._average.row(0).values())
        torch._foreach_lerp_(average, self._average.present(), self._weight(self.count))

    def copies(self) -> list[dict[str, torch.Tensor]]:
        """The average by parameter name."""
        return [self._average.row(0)]

    def state_dict(self) -> dict[str, Any]:
        """The average and how many updates made it."""
        return {"count": self.count, **self._average.state_dict("mean")}

    def load_state_dict(self, state: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
        """Take back what `state_dict` gave, for the parameters `named` of the model."""
        self.count = state["count"]
        self._average.load_state_dict("mean", state, named)


def _reduce(function: Callable, values: torch.Tensor, result: torch.Tensor) -> None:
    """`torch.sum` or `torch.mean` over the rows, without a copy where the result is on their device."""
    if result.device == values.device:
        function(values, 0, dtype=result.dtype, out=result)
    else:
        result.copy_(function(values, 0, dtype=result.dtype))


def mean_weight(update: int) -> float:
    """With this weight the average is the mean of the values after all updates."""
    return 1 / update


def ema_weight(update: int) -> float:
    """1 - decay of an exponential moving average whose decay rises as (1 + n) / (10 + n), to 0.995 at most.

    Differs: from no paper; it is what lonePatient/BERT-SDA, a public implementation of Xu et al. 2020, uses instead
    of their window.
    """
    return 1 - min(0.995, (1 + update) / (10 + update))
