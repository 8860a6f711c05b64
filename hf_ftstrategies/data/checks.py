"""What can be wrong with the rows of a data set, found and counted before any training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_ftstrategies.data.local_files import PROBLEM

if TYPE_CHECKING:
    from datasets import Dataset

SHOWN_ROWS = 5


@dataclass(frozen=True)
class Problem:
    """Rows of one split that share a fault.

    Args:
        split (`str`): The split.
        what (`str`): The fault, as the end of the sentence "3 rows ...".
        rows (`Sequence[int]`): The rows' numbers, counted from 0.
    """

    split: str
    what: str
    rows: Sequence[int]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.rows[:SHOWN_ROWS])) + (", ..." if len(self.rows) > SHOWN_ROWS else "")
        return f"{self.split}: {len(self.rows):,} row(s) {self.what} (row {shown})"


def group_problems(split: str, faults: Iterable[tuple[int, str]]) -> list[Problem]:
    """Collect single faults `(row, what)` of one split into one `Problem` for each `what`."""
    rows: dict[str, list[int]] = {}
    for row, what in faults:
        rows.setdefault(what, []).append(row)
    return [Problem(split, what, numbers) for what, numbers in rows.items()]


def text_problems(split: str, dataset: Dataset, text_columns: Sequence[str]) -> list[Problem]:
    """Find the rows that could not be read, and those with a missing or empty text.

    Args:
        split (`str`): Name of the split, for the messages.
        dataset (`Dataset`): Its rows.
        text_columns (`Sequence[str]`): Columns of strings.
    """
    columns = [*text_columns, *([PROBLEM] if PROBLEM in dataset.column_names else [])]

    def faults() -> Iterator[tuple[int, str]]:
        for row, cells in _iterate(dataset, columns):
            if len(cells) > len(text_columns) and cells[-1] is not None:
                yield row, cells[-1]
                continue
            yield from ((row, what) for what in text_faults(dict(zip(text_columns, cells, strict=False))))

    return group_problems(split, faults())


def text_faults(texts: Mapping[str, str | None]) -> Iterator[str]:
    """What is wrong with the texts of one row, by column."""
    for column, text in texts.items():
        if text is None:
            yield f"without a text in column {column!r}"
        elif not text.strip():
            yield f"with an empty text in column {column!r}"


def text_findings(splits: Mapping[str, Dataset], text_columns: Sequence[str]) -> list[Problem]:
    """Find what is worth knowing but no reason to stop.

    These are texts that stand more than once in a split, texts of another split that also stand in `train`,
    and characters that an earlier decoding has destroyed (U+FFFD).

    Args:
        splits (`Mapping[str, Dataset]`): The rows of each split; `train`, if it is there, comes first.
        text_columns (`Sequence[str]`): Columns of strings; two rows are equal if all of them are.
    """
    found = []
    train: set[int] = set()
    for split, dataset in splits.items():
        faults: list[tuple[int, str]] = []
        seen: set[int] = set()  # hashes: half a million long texts would not fit
        for row, texts in _iterate(dataset, text_columns):
            key = hash(texts)
            if key in seen:
                faults.append((row, "repeat the text of an earlier row"))
            if key in train:
                faults.append((row, "have a text that also stands in train"))
            if any("\ufffd" in text for text in texts):
                faults.append((row, "hold characters lost in an earlier decoding (U+FFFD)"))
            seen.add(key)
        if split == "train":
            train = seen
        found += group_problems(split, faults)
    return found


def leakage(splits: Mapping[str, Dataset], text_columns: Sequence[str]) -> str:
    """How many texts of the evaluation splits were trained on, whatever their white space, in one sentence.

    Args:
        splits (`Mapping[str, Dataset]`): The rows of a run, `train` among them.
        text_columns (`Sequence[str]`): Columns of strings; two rows are equal if all of them are.
    """

    def keys(split: str) -> list[int]:
        return [hash(tuple(map(text_key, texts))) for _, texts in _iterate(splits[split], text_columns)]

    train = set(keys("train"))
    shares = [
        f"{sum(key in train for key in keys(split)):,} of {len(rows):,} texts of {split}"
        for split, rows in splits.items()
        if split != "train"
    ]
    return f"leakage, white space aside: {' and '.join(shares)} also stand among the rows trained on"


def text_key(text: str) -> str:
    """A text without its white space, so that copies with other line breaks are the same text."""
    return "".join(text.split())


def _iterate(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[int, tuple]]:
    row = 0
    for batch in dataset.select_columns(list(columns)).iter(batch_size=10_000):
        for cells in zip(*(batch[column] for column in columns), strict=True):
            yield row, cells
            row += 1
