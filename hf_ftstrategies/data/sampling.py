"""Seeded subsets and splits: stratified, few-shot, and those of published studies.

Everything here only chooses row numbers, so the same seed gives the same rows on every machine: the stream of
`numpy.random.RandomState` is frozen.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hf_ftstrategies.data.tasks import ONE_TEXT, TWO_TEXTS
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset


def stratified_split(
    dataset: Dataset,
    sizes: Mapping[str, int | float],
    seed: int,
    label_column: str = "label",
    group_by: str | Sequence[str] | None = None,
) -> dict[str, Dataset]:
    """Cut disjoint parts that have the label distribution of the whole, equal texts never in two parts.

    Classes are represented in proportion to within two rows; numbers are stratified by their tenths
    (deciles). Sizes are met exactly, unless equal texts do not fit any more into any part.

    Args:
        dataset (`Dataset`): The rows to divide.
        sizes (`Mapping[str, int | float]`): For each part its number of rows, or its share as a float below
            1. What they leave over belongs to no part; shares that sum to 1 leave nothing.
        seed (`int`): Seed of the draw.
        label_column (`str`, *optional*, defaults to `"label"`): Column to stratify by.
        group_by (`str` or `Sequence[str]`, *optional*): Columns whose equal rows stay together; defaults to
            the text columns, `text` or `sentence1` and `sentence2`.

    Returns:
        `dict[str, Dataset]`: The parts, in the order of `sizes`; rows in random order.

    Raises:
        ValueError: Sizes that are not positive or more than there is, or an unknown column.
    """
    counts = _part_sizes(sizes, len(dataset))
    strata = _strata(dataset, label_column)
    groups: dict[Hashable, list[int]] = {}
    for row, key in enumerate(_group_keys(dataset, group_by)):
        groups.setdefault(key, []).append(row)
    members = list(groups.values())

    rng = np.random.RandomState(seed)
    order = _stratified_order([strata[rows[0]] for rows in members], rng)
    room = [*counts, len(dataset) - sum(counts)]
    parts: list[list[int]] = [[] for _ in room]
    for index in order:
        rows = members[index]
        fitting = [part for part, left in enumerate(room) if left >= len(rows)]
        part = fitting[0] if fitting else int(np.argmax(room))
        parts[part] += rows
        room[part] -= len(rows)
    return {name: dataset.select(rng.permutation(rows)) for name, rows in zip(sizes, parts, strict=False)}


def few_shot(
    dataset: Dataset,
    *,
    fraction: float | None = None,
    count: int | None = None,
    per_class: int | None = None,
    seed: int,
    label_column: str = "label",
) -> Dataset:
    """Draw a small training set; with the same seed a smaller one is part of every larger one.

    `fraction` and `count` draw in proportion to the classes, and are nested in each other; `per_class` draws
    the same number of each and is nested in itself.

    Args:
        dataset (`Dataset`): The rows to draw from.
        fraction (`float`, *optional*): Share of the rows, above 0 and at most 1; 0.004 is 0.4 %.
        count (`int`, *optional*): Number of rows.
        per_class (`int`, *optional*): Number of rows of each class.
        seed (`int`): Seed of the draw.
        label_column (`str`, *optional*, defaults to `"label"`): Column with the class.

    Returns:
        `Dataset`: The drawn rows, in random order.

    Raises:
        ValueError: Not exactly one of `fraction`, `count` and `per_class`, or more rows than there are.

    Paper: Sun et al. 2019, section 5.6.
    Differs: the paper's code takes the first rows of the file, one too many, whatever their classes.
    """
    given = {"fraction": fraction, "count": count, "per_class": per_class}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"Give exactly one of fraction, count and per_class; got {given or 'none'}.")
    strata = _strata(dataset, label_column)
    rng = np.random.RandomState(seed)
    if per_class is not None:
        rows = _first_of_each(strata, per_class, rng)
        return dataset.select(rng.permutation(rows))
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}.")
        count = max(1, round(fraction * len(dataset)))
    if not 0 < count <= len(dataset):
        raise ValueError(f"count must be 1 to {len(dataset):,} (all rows), got {count:,}.")
    return dataset.select(_stratified_order(strata, rng)[:count])


def zhang_halves(dataset: Dataset, label_column: str = "label") -> dict[str, Dataset]:
    """Halve a small development set into `validation` and `test`, to the row as Zhang et al.

    Rows of each label (each distinct score in regression) are shuffled with seed 1; the first `floor(n / 2)`
    are for validation.

    Args:
        dataset (`Dataset`): The development set, in its published order.
        label_column (`str`, *optional*, defaults to `"label"`): Column with the label or score.

    Returns:
        `dict[str, Dataset]`: `validation` and `test`.

    Paper: Zhang et al. 2021, "Revisiting Few-sample BERT Fine-tuning", section 3, and its code.
    Differs: nothing from the code. The sizes in the paper's table 3 (RTE 139/139, MRPC 204/205, STS-B 690/690,
    CoLA 521/521) are not those the code gives on these development sets: 138/139, 203/205, 722/778, 521/522.
    """
    validation: list[int] = []
    test: list[int] = []
    for rows in _rows_of_each(_column(dataset, label_column)).values():
        np.random.RandomState(1).shuffle(rows)  # a new generator for every label, as in the code
        validation += rows[: len(rows) // 2]
        test += rows[len(rows) // 2 :]
    return {"validation": dataset.select(validation), "test": dataset.select(test)}


def zhang_subset(dataset: Dataset, count: int = 1000, *, last: bool = False, label_column: str = "label") -> Dataset:
    """Draw the training set of 1,000 rows of Zhang et al., or the validation set they draw from the same
    rows.

    Rows of each class are shuffled with seed 0, classes in the order of their first rows, and the first
    `count // classes` of each are taken. Numbers (regression) are drawn with `torch.randperm`, without
    strata.

    Args:
        dataset (`Dataset`): The training set, in its published order.
        count (`int`, *optional*, defaults to 1000): Number of rows, rounded down to a multiple of the
            classes. A class with fewer rows gives all it has.
        last (`bool`, *optional*, defaults to `False`): Take the last rows of each class instead, which is how
            the validation set of the larger data sets is made.
        label_column (`str`, *optional*, defaults to `"label"`): Column with the class or score.

    Raises:
        ValueError: Fewer rows than classes, or `last` for numbers, which the study does not define.

    Paper: Zhang et al. 2021, section 3 and appendix, and its code.
    """
    labels = _column(dataset, label_column)
    if any(isinstance(label, float) for label in labels):
        import torch

        if last:
            raise ValueError("The study draws no validation set from training rows with scores; use last=False.")
        generator = torch.Generator().manual_seed(0)
        return dataset.select(torch.randperm(len(labels), generator=generator)[:count].tolist())
    rng = np.random.RandomState(0)
    by_class = _rows_of_each(labels)
    size = count // len(by_class)
    if size < 1:
        raise ValueError(f"count={count} is less than one row for each of {len(by_class)} classes.")
    chosen: list[int] = []
    for rows in by_class.values():
        rng.shuffle(rows)
        chosen += rows[-size:] if last else rows[:size]
    return dataset.select(chosen)


def _part_sizes(sizes: Mapping[str, int | float], total: int) -> list[int]:
    """Numbers of rows, shares rounded so that shares that sum to 1 use every row."""
    if not sizes:
        raise ValueError("sizes names no part; give for example {'train': 0.9, 'validation': 0.1}.")
    counts = []
    share_before = 0.0
    for name, size in sizes.items():
        if size <= 0 or (isinstance(size, float) and size >= 1):
            raise ValueError(f"The size of {name!r} must be a positive int or a float below 1, got {size}.")
        if isinstance(size, float):
            start = round(share_before * total)
            share_before += size
            size = round(share_before * total) - start
        counts.append(size)
    if sum(counts) > total or share_before > 1 + 1e-9:
        raise ValueError(f"The parts {dict(sizes)} are more than the {total:,} rows there are.")
    if 0 in counts:
        raise ValueError(f"The parts {dict(sizes)} of {total:,} rows leave one empty.")
    return counts


def _group_keys(dataset: Dataset, group_by: str | Sequence[str] | None) -> list[Hashable]:
    if group_by is None:
        texts = (columns for columns in (ONE_TEXT, TWO_TEXTS) if set(columns) <= set(dataset.column_names))
        group_by = next(texts, ())
    columns = (group_by,) if isinstance(group_by, str) else tuple(group_by)
    if not columns:
        return list(range(len(dataset)))
    return list(zip(*(_column(dataset, column) for column in columns), strict=True))


def _strata(dataset: Dataset, label_column: str) -> list[Hashable]:
    """The class of each row; of numbers their decile, of label lists the list."""
    labels = _column(dataset, label_column)
    if labels and isinstance(labels[0], float):
        return np.digitize(labels, np.quantile(labels, np.arange(1, 10) / 10)).tolist()
    return [tuple(label) if isinstance(label, list) else label for label in labels]


def _stratified_order(strata: Sequence[Hashable], rng: np.random.RandomState) -> np.ndarray:
    """An order in which every stretch has the strata in proportion: the k-th of n rows stands at (k - 1/2) /
    n."""
    place = np.empty(len(strata))
    for rows in _rows_of_each(strata).values():
        place[rng.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    ties = rng.permutation(len(strata))
    return np.lexsort((ties, place))


def _first_of_each(strata: Sequence[Hashable], size: int, rng: np.random.RandomState) -> list[int]:
    chosen: list[int] = []
    for label, rows in _rows_of_each(strata).items():
        if not 0 < size <= len(rows):
            raise ValueError(f"per_class={size} asked for, but class {label!r} has {len(rows)} rows.")
        chosen += rng.permutation(rows)[:size].tolist()
    return chosen


def _rows_of_each(labels: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    rows: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    return rows


def _column(dataset: Dataset, name: str) -> list:
    if name not in dataset.column_names:
        raise ValueError(
            f"There is no column {name!r}.{did_you_mean(name, dataset.column_names)} "
            f"Columns: {', '.join(dataset.column_names)}."
        )
    return dataset[name][:]
