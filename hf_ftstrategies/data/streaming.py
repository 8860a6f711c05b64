"""Training data that is read while it is trained on, for sets larger than memory or disk.

The training split is a `datasets.IterableDataset`: its rows are put into the columns of the task, checked, shuffled
in a buffer and tokenised when their turn comes, and read anew in every pass. Validation and test are read whole.
What only a whole set can tell (duplicates, shares of classes, a stratified part) a stream cannot: it counts what it
has seen, and says in its notes what nobody looked at.
"""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info

from hf_ftstrategies.data.checks import Problem, text_faults
from hf_ftstrategies.data.cleaning import check_rule, class_names, read_labels
from hf_ftstrategies.data.columns import LABEL, Layout, arrange, find_layout, join_columns
from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.labels import Fault, label_encoder
from hf_ftstrategies.data.local_files import PROBLEM, FileFormat
from hf_ftstrategies.data.lookup import find_splits
from hf_ftstrategies.data.registry import REGISTRY, UNREGISTERED
from hf_ftstrategies.data.sources import prepare_splits
from hf_ftstrategies.data.splits import subset
from hf_ftstrategies.data.tasks import get_task
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

BUFFER_SIZE = 10_000
BATCH = 1_000  # rows that are cleaned, and tokenised, at once
HEAD = 1_000  # first rows, which tell columns and whether labels are names or indices
SAMPLE = 100_000  # examples whose labels and truncation are kept for the report


def stream_split(
    name: str,
    split: str = "train",
    *,
    data_root: str | os.PathLike | None = None,
    config_name: str | None = None,
    encoding: str = "utf-8",
) -> IterableDataset:
    """Open one split for reading row by row, with its raw columns; nothing else is read or downloaded.

    Rows of a text file that cannot be read say why in a column `PROBLEM` (`local_files.py`), which is None in all
    others.

    Args:
        name (`str`), data_root (`str` or `PathLike`, *optional*), config_name (`str`, *optional*), encoding (`str`,
            *optional*, defaults to `"utf-8"`): As in `load_dataset_splits`.
        split (`str`, *optional*, defaults to `"train"`): The split.

    Returns:
        `IterableDataset`: In the order of the data.

    Raises:
        ValueError: As `load_dataset_splits`, or no such split.
    """
    splits, source = find_splits(name, data_root, config_name, FileFormat(encoding), streaming=True)
    if split not in splits:
        raise ValueError(f"{source} has no split {split!r}.{did_you_mean(split, splits)} It has: {', '.join(splits)}.")
    return splits[split]


def load_streamed_splits(
    name: str,
    *,
    data_root: str | os.PathLike | None = None,
    task: str | None = None,
    text_column: str | Sequence[str] | None = None,
    text_pair_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    on_bad_rows: str = "error",
    train_rows: int | None = None,
    validation_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
    shuffle_seed: int = 0,
) -> tuple[dict[str, Dataset | TrainStream], DatasetInfo, list[str]]:
    """Load a data set as `load_dataset_splits` and `make_splits` do, but leave the training split a stream.

    Validation and test are whole, in memory. Where there is none, `validation_rows` and `test_rows` take the first
    rows of the stream, and training skips them. Labels must be known before the stream is read: they are those of
    its features, of the registry, or all that validation has.

    Args:
        name, data_root, task, text_column, text_pair_column, label_column, on_bad_rows: As in `load_dataset_splits`.
        train_rows (`int`, *optional*): The first rows of the stream (after those for validation and test); None = all.
        validation_rows, test_rows (`int`, *optional*): Rows to use of a split, stratified, or to take from the stream.
        seed (`int`, *optional*, defaults to 0): Of subsets.
        shuffle_seed (`int`, *optional*, defaults to 0): Of the order of training examples.

    Returns:
        `tuple[dict[str, Dataset | TrainStream], DatasetInfo, list[str]]`: The splits; `rows` of the info has no
        `train`, and its findings are those of validation and test; and notes as of `make_splits`.

    Raises:
        ValueError: As `load_dataset_splits`, for validation and test; no train split, no rows in it; no validation
            split and no `validation_rows`.
    """
    check_rule(on_bad_rows)
    splits, source = find_splits(name, data_root, None, FileFormat(), streaming=True)
    if "train" not in splits:
        raise ValueError(f"{source} has the splits {', '.join(splits)}, but no train split.")
    wanted = {"validation": validation_rows, "test": test_rows}
    held, taken, notes = _held_out(splits, wanted, source)
    train = splits["train"].skip(taken) if taken else splits["train"]
    head = _read(train.take(HEAD), f"{source}, split 'train'" + f" after its first {taken:,} rows" * bool(taken))
    if train_rows is not None:
        train = train.take(train_rows)
        notes.append(f"train: at most {train_rows:,} rows, from row {taken:,} of the stream on, not stratified")

    spec = REGISTRY.get(name, UNREGISTERED)
    layout = find_layout(head.column_names, spec, text_column, text_pair_column, label_column)
    arrange(head, layout, f"{source}, split 'train'", need_labels=True)  # complains about missing columns
    names = class_names({**held, "train": head}, layout.labels)  # complains where they differ
    given = () if class_names(held, layout.labels) else names
    usual = spec.label_names if label_column is None else ()
    dataset, info = prepare_splits(name, held, source, layout, task, given, usual, on_bad_rows)
    if "validation" in info.unlabelled:
        raise ValueError(f"{source}: the split 'validation' has no labels, so it cannot validate.")

    cleaner = _make_cleaner(head, layout, info, on_bad_rows, first_row=taken)
    # skip and take fix the order of the files
    shards = train.n_shards if not taken and train_rows is None else 1
    files = [train.shard(shards, index) for index in range(shards)] if shards > 1 else [train]
    result: dict[str, Dataset | TrainStream] = {"train": TrainStream(files, cleaner, shuffle_seed)}
    for split in (split for split in dataset if split not in info.unlabelled):
        # what was taken from the stream is what was asked for, but for bad rows
        result[split], reduced = subset(dataset[split], split, wanted[split] if split in splits else None, seed)
        notes += reduced
    return result, info, notes


def _held_out(
    splits: Mapping[str, IterableDataset], wanted: Mapping[str, int | None], source: str
) -> tuple[dict[str, Dataset], int, list[str]]:
    """Raw validation and test, how many rows of train they took, and the notes on that."""
    held, taken, notes = {}, 0, []
    for split, count in wanted.items():
        if split in splits:
            held[split] = _read(splits[split], f"{source}, split {split!r}")
        elif count is not None:
            where = f"{source}, split 'train' after its first {taken:,} rows"
            held[split] = _read(splits["train"].skip(taken).take(count), where)
            if len(held[split]) < count:
                raise ValueError(f"{split}_rows is {count:,}, but the stream has {taken + len(held[split]):,} rows.")
            notes.append(f"{split}: rows {taken:,} to {taken + count - 1:,} of the stream, which training skips")
            taken += count
        elif split == "validation":
            raise ValueError(
                f"{source} has no validation split, and a stream cannot be divided by shares: give validation_rows, "
                "and as many of its first rows are taken."
            )
        else:
            notes.append("test: none; the scores are of validation, which also chose the weights")
    return held, taken, notes


def _read(rows: IterableDataset, where: str) -> Dataset:
    from datasets import Dataset

    whole = list(rows)
    if not whole:
        raise ValueError(f"{where}: there is no row.")
    return Dataset.from_list(whole, features=rows.features)


def _make_cleaner(head: Dataset, layout: Layout, info: DatasetInfo, on_bad_rows: str, first_row: int) -> RowCleaner:
    names = class_names({"train": head}, layout.labels)
    labels = read_labels({column: head[column][:] for column in layout.labels}, names)
    encode = label_encoder(get_task(info.task).label_kind, info.label_names, labels)
    return RowCleaner(layout, encode, names, on_bad_rows, info.source, first_row)


@dataclass
class RowCleaner:
    """Puts batches of raw rows into the columns of the task, without bad rows, which it counts.

    Args:
        layout (`Layout`): Of the raw rows.
        encode (`Callable`): Of `label_encoder`.
        class_names (`tuple[str, ...]`): Of the label column's own feature; empty if it has none.
        on_bad_rows (`str`): `"error"` or `"drop"`.
        source (`str`): Where the rows came from, for messages.
        first_row (`int`): Number of the first row that comes.

    Raises:
        ValueError: A bad row with `on_bad_rows="error"`, when its turn comes.
    """

    layout: Layout
    encode: Callable[[Any], Any]
    class_names: tuple[str, ...]
    on_bad_rows: str
    source: str
    first_row: int
    dropped: dict[str, array] = field(default_factory=dict, init=False)

    def clean(self, batch: dict[str, list], begin: int, file: str, counts: bool) -> Iterator[dict[str, Any]]:
        """Clean one batch.

        Args:
            batch (`dict[str, list]`): Raw columns.
            begin (`int`): How many rows came before it.
            file (`str`): Of which file, for messages; empty where there is one.
            counts (`bool`): Whether bad rows are counted: in the first pass.
        """
        texts = {
            name: batch[parts[0]] if len(parts) == 1 else join_columns(batch, parts)
            for name, parts in self.layout.texts.items()
        }
        labels = list(map(self.encode, read_labels({c: batch[c] for c in self.layout.labels}, self.class_names)))
        unread = batch.get(PROBLEM, [None] * len(labels))
        for place, (label, problem, *cells) in enumerate(zip(labels, unread, *texts.values(), strict=True)):
            row = dict(zip(texts, cells, strict=True))
            fault = problem or next(text_faults(row), None) or (label if isinstance(label, Fault) else None)
            if fault is None:
                yield {**row, LABEL: label}
            elif self.on_bad_rows == "error":
                self._refuse(fault, self.first_row + begin + place, file)
            elif counts:
                self.dropped.setdefault(str(fault), array("q")).append(self.first_row + begin + place)

    def _refuse(self, fault: str, number: int, file: str) -> None:
        labels = "\nLabels must be known before a stream is read: from its features, the registry or validation."
        raise ValueError(
            f"{self.source}, split 'train', has a bad row: row {number:,}{file} (counted from 0) {fault}"
            f"{labels * isinstance(fault, Fault)}\nRepair it, or leave such rows out with on_bad_rows='drop'."
        )

    def notes(self) -> list[str]:
        """What was dropped."""
        return [f"dropped: {Problem('train', fault, rows)}" for fault, rows in self.dropped.items()]


@dataclass
class Seen:
    """What the first pass over a stream has shown.

    Args:
        count (`int`): Its examples.
        columns (`dict[str, list]`): `labels` and `truncated` of the first of them, `SAMPLE` at most.
    """

    count: int
    columns: dict[str, list]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, column: str) -> list:
        return self.columns[column]


class TrainStream(TorchIterableDataset):
    """Training examples of a stream: as many as the training takes, over as many passes as that needs.

    The order of a pass (of files, and of rows in a buffer) follows the seed and the number of the pass alone, and
    all examples are one epoch to the Trainer. So a training that was stopped anywhere skips what it had and goes on
    with equal bits, and processes that each take their slice of a batch (accelerate with `dispatch_batches=False`)
    see what one process with their batch together sees. Each of them reads and tokenises the whole stream.

    Args:
        files (`Sequence[IterableDataset]`): Raw rows, in parts whose order may change.
        cleaner (`RowCleaner`): Makes clean rows of them.
        seed (`int`): Of the order.

    Attributes:
        features (`Callable`): Makes model inputs of a batch of clean rows, with `labels` and `truncated`.
        length (`int`): Examples in all; to be set.

    Raises:
        ValueError: When it is iterated over: bad rows, none left, or in a worker process of a dataloader, where what
            is seen and dropped would be lost.

    Differs: Not `IterableDataset.shuffle`, which in datasets 5.2 reads ahead in threads, so that what was read at the
    end of a training is not certain, and waits 5 s when it ends; and no `IterableDataset` itself, because of one with
    several files accelerate would give each process some of them.
    """

    features: Callable[[dict[str, list]], dict[str, list]]
    length: int = 0

    def __init__(self, files: Sequence[IterableDataset], cleaner: RowCleaner, seed: int):
        self.files, self.cleaner, self.seed = files, cleaner, seed
        self._restart()

    def _restart(self) -> None:
        self.given, self.passes, self.first_pass = 0, 0, Seen(0, {"labels": [], "truncated": []})
        self.cleaner.dropped.clear()

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if get_worker_info() is not None:
            raise ValueError("A training stream is read by the process that trains: set dataloader_num_workers=0.")
        self._restart()
        while self.given < self.length:
            before = self.given
            for example in islice(self._examples(), self.length - before):
                self.given += 1
                if self.passes == 0:
                    self._note(example)
                yield example
            if self.given == before:
                dropped = " ".join(self.cleaner.notes())
                raise ValueError(f"{self.cleaner.source}: no row of the split 'train' is left. {dropped}")
            self.passes += self.given < self.length  # then the pass ended, not the training

    def _note(self, example: dict[str, Any]) -> None:
        if self.first_pass.count < SAMPLE:
            for name, column in self.first_pass.columns.items():
                column.append(example[name])
        self.first_pass.count += 1

    def _examples(self) -> Iterator[dict[str, Any]]:
        """Model inputs of one pass."""
        draw = random.Random(f"{self.seed}, pass {self.passes}")
        rows = shuffle_in_buffer(self._rows(draw), draw)
        while batch := list(islice(rows, BATCH)):
            inputs = self.features({column: [row[column] for row in batch] for column in batch[0]})
            for values in zip(*inputs.values(), strict=True):
                yield dict(zip(inputs, values, strict=True))

    def _rows(self, draw: random.Random) -> Iterator[dict[str, Any]]:
        """Clean rows of one pass."""
        count = len(self.files)
        for file in draw.sample(range(count), count):
            name, begin = f" of file {file}" * (count > 1), 0
            for batch in self.files[file].iter(batch_size=BATCH):
                yield from self.cleaner.clean(batch, begin, name, counts=self.passes == 0)
                begin += len(next(iter(batch.values())))

    def look(self, examples: int) -> Seen:
        """What so many examples have shown; they are read again where this process did not train on them."""
        if self.given < examples:
            for _ in islice(self, examples):
                pass
        columns = {name: column[:examples] for name, column in self.first_pass.columns.items()}
        return Seen(min(examples, self.first_pass.count), columns)

    def notes(self, examples: int) -> list[str]:
        """What a reader of the results should know, after so many examples: what was read, and what nobody saw."""
        rows = len(self.look(examples))
        passes = f"in {-(-examples // rows)} passes over {rows:,} rows" if examples > rows else "of the first pass"
        return [
            f"train: streamed, {examples:,} examples {passes}, which count as one epoch; shuffled in a buffer of "
            f"{BUFFER_SIZE:,} rows, not grouped by length",
            f"majority baseline and truncated share of train: of the {rows:,} examples seen in the first pass"
            + f" (its first {SAMPLE:,})" * (rows > SAMPLE),
            "not looked for in a stream: repeated texts, and texts of validation or test that also stand in train",
            *self.cleaner.notes(),
        ]


def shuffle_in_buffer(rows: Iterator[Any], draw: random.Random) -> Iterator[Any]:
    """Give rows in random order, as far as a buffer of `BUFFER_SIZE` of them allows."""
    buffer = list(islice(rows, BUFFER_SIZE))
    for row in rows:
        place = draw.randrange(len(buffer))
        yield buffer[place]
        buffer[place] = row
    draw.shuffle(buffer)
    yield from buffer
