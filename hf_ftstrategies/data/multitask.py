"""Rows of several tasks in one training: each optimizer step is of one task, the tasks in random order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hf_ftstrategies.suggest import check_type, did_you_mean

# The share of a task with so many rows, before it is divided by the sum over the tasks.
SAMPLINGS = {"square_root": np.sqrt, "equal": np.ones_like}


class MultiTaskRows(torch.utils.data.Dataset):
    """The rows of several tasks, in blocks of one task each, with a column `task_ids`.

    The blocks come in random order. A task's rows are shuffled in every epoch and drawn without replacement; those
    that do not fill a last block are other ones in each epoch. A task with more blocks than its rows fill starts again,
    shuffled anew.

    The order follows from `seed` and the epoch alone, so it is the same after a resume and on any number of processes,
    if the rows are read as they come: `train_sampling_strategy="sequential"` in the training arguments. Trainer then
    calls `set_epoch` itself.

    Args:
        rows (`Mapping[str, Sequence]`): For each task, by name, its model inputs with `labels`: a `Dataset`, or a
            list of dictionaries.
        tasks (`Iterable[str]`): The names of all tasks of the model in the order of their numbers, that is,
            `model.config.tasks`. Tasks without rows are not trained.
        block_size (`int`): Rows of an optimizer step: rows per device times processes times gradient accumulation.
        sampling (`str`, *optional*, defaults to `"proportional"`): How many of the blocks are a task's, if it has N_i
            rows. `"proportional"`: floor(N_i / block_size), so that no row comes twice in an epoch. `"square_root"` and
            `"equal"`: of as many blocks in all, the share sqrt(N_i) / sum_j sqrt(N_j), or the same for all; rounded by
            the largest remainder.
        seed (`int`, *optional*, defaults to 42): Of the order; not negative.

    Raises:
        ValueError: No rows, an unknown task or sampling, a task that would get no block.

    Paper: Sun et al. 2019, section 5.5, and its code (`"proportional"`).

    Differs: the paper's code makes a new iterator of a task in every step, and so draws with replacement. MT-DNN (Liu
    et al. 2019) cuts its batches once, and in each epoch shuffles only their order.
    """

    def __init__(
        self,
        rows: Mapping[str, Sequence[Mapping[str, Any]]],
        tasks: Iterable[str],
        block_size: int,
        *,
        sampling: str = "proportional",
        seed: int = 42,
    ):
        names = list(tasks)
        for name in rows:
            if name not in names:
                raise ValueError(
                    f"The model has no task {name!r}.{did_you_mean(name, names)} Tasks: {', '.join(names)}."
                )
        for setting, value, least in (("block_size", block_size, 1), ("seed", seed, 0)):
            check_type(setting, value, int)
            if value < least:
                raise ValueError(f"{setting} is {value}: give {least} or more.")
        self.rows = dict(rows)
        self.block_size = block_size
        self.seed = seed
        self.blocks = _count_blocks({name: len(task) for name, task in rows.items()}, block_size, sampling)
        self._ids = {name: names.index(name) for name in rows}
        # In shared memory: workers of a data loader that outlive an epoch must hear of the next one.
        self._epoch = torch.tensor(0).share_memory_()
        self._ordered: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, counted from 0; Trainer does it."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return sum(self.blocks.values()) * self.block_size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self._ordered != int(self._epoch):
            self._ordered = int(self._epoch)
            self._order = self._draw(self._ordered)
        block, place = divmod(range(len(self))[index], self.block_size)
        name, rows = self._order[block]
        return {**self.rows[name][int(rows[place])], "task_ids": self._ids[name]}

    def _draw(self, epoch: int) -> list[tuple[str, np.ndarray]]:
        """The task and the rows of each block of an epoch."""
        rng = np.random.RandomState([self.seed, epoch])
        blocks = []
        for name, count in self.blocks.items():
            total, size = count * self.block_size, len(self.rows[name])
            drawn = np.concatenate([rng.permutation(size) for _ in range(-(-total // size))])[:total]
            blocks += [(name, rows) for rows in drawn.reshape(count, self.block_size)]
        return [blocks[place] for place in rng.permutation(len(blocks))]


def _count_blocks(sizes: Mapping[str, int], block_size: int, sampling: str) -> dict[str, int]:
    if sampling not in ("proportional", *SAMPLINGS):
        known = ("proportional", *SAMPLINGS)
        raise ValueError(f"sampling is {sampling!r}, known are {', '.join(known)}.{did_you_mean(str(sampling), known)}")
    if not sizes or 0 in sizes.values():
        raise ValueError(f"There are no rows of some task: {dict(sizes)} rows.")
    counts = np.array([size // block_size for size in sizes.values()])
    if sampling != "proportional":
        weights = SAMPLINGS[sampling](np.array([*sizes.values()], dtype=float))
        shares = counts.sum() * weights / weights.sum()
        counts, left = np.floor(shares).astype(int), shares % 1
        counts[np.argsort(-left, kind="stable")[: round(left.sum())]] += 1
    for (name, size), count in zip(sizes.items(), counts, strict=True):
        if count == 0:
            raise ValueError(
                f"Task {name!r} with {size} rows gets no block of {block_size} by sampling {sampling!r}: give "
                f"smaller blocks (batches){', or another sampling' if sampling == 'proportional' else ''}."
            )
    return dict(zip(sizes, counts.tolist(), strict=True))
