"""Texts for further pre-training that are read while they are trained on, for corpora larger than memory or disk."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from hf_ftstrategies.data.checks import text_key
from hf_ftstrategies.data.corpora import CorpusPart, document_columns, join_texts
from hf_ftstrategies.data.streaming import shuffle_in_buffer, stream_split

BATCH = 1_000  # documents that are made into examples at once: random next segments come from among them


class CorpusStream:
    """Documents of data sets, read anew in every pass, without the texts of the evaluation.

    Args:
        names, data_root, splits, text_columns, without, rows: As of `load_corpus`; `rows` are the first ones.

    Attributes:
        parts (`list[CorpusPart]`): What each data set has given in the pass that went furthest.

    Raises:
        ValueError: as `load_corpus`, before anything else is read.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        data_root: str | os.PathLike | None = None,
        splits: Mapping[str, Sequence[str]],
        text_columns: Mapping[str, Sequence[str | None]] | None = None,
        without: Iterable[str] = (),
        rows: int | None = None,
    ):
        self._unwanted, self._rows, self._sources = {text_key(text) for text in without}, rows, []
        self._given: dict[str, list[int]] = {name: [0, 0] for name in names}
        self._splits = {name: tuple(splits[name]) for name in names}
        for name in names:
            streams = [stream_split(name, split, data_root=data_root) for split in splits[name]]
            found = streams[0].column_names or list(next(iter(streams[0])))
            columns = document_columns(name, found, *(text_columns or {}).get(name, (None, None)))
            self._sources.append((name, columns, streams))

    @property
    def parts(self) -> list[CorpusPart]:
        """What each data set has given so far."""
        return [CorpusPart(name, self._splits[name], *given) for name, given in self._given.items()]

    def documents(self) -> Iterator[str]:
        """One pass: of every data set in turn."""
        return chain.from_iterable(self._documents_of(*source) for source in self._sources)

    def _documents_of(self, name: str, columns: Sequence[str], streams: Sequence[Iterable[dict]]) -> Iterator[str]:
        given = left_out = 0
        for row in chain.from_iterable(streams):
            text = join_texts([row[column] for column in columns])
            key = text_key(text)
            if not key:
                continue
            if key in self._unwanted:
                left_out += 1
                continue
            if given == self._rows:
                break
            given += 1
            self._given[name] = list(map(max, self._given[name], (given, left_out)))
            yield text


class ExampleStream(IterableDataset):
    """Examples of a corpus: as many as the training takes, over as many passes as that needs.

    Everything drawn follows the seed and the numbers of pass, document and example alone, and all examples are one
    epoch to the Trainer. So a training that was stopped anywhere skips what it had and goes on with equal bits, and
    processes that each take their slice of a batch (accelerate with `dispatch_batches=False`) see what one process
    sees. Each of them reads and tokenises the whole stream.

    Args:
        corpus (`CorpusStream`): The documents.
        make (`Callable`): `make(texts, first)` gives the examples of a batch of documents, whose first one is
            number `first` of all passes.
        mask (`Callable`): `mask(examples, first)` masks them; the first one is number `first` of all passes.
        length (`int`): Examples in all.
        skip (`int`, *optional*, defaults to 0): First documents that are not used, because they are held out.
        seed (`int`, *optional*, defaults to 0): Of the order.

    Raises:
        ValueError: no document is left, or in a worker process of a dataloader.
    """

    def __init__(
        self,
        corpus: CorpusStream,
        make: Callable[[list[str], int], dict[str, list]],
        mask: Callable[[dict[str, list], int], dict[str, list]],
        length: int,
        skip: int = 0,
        seed: int = 0,
    ):
        self.corpus, self.make, self.mask, self.length, self.skip, self.seed = corpus, make, mask, length, skip, seed

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if get_worker_info() is not None:
            raise ValueError("A corpus is streamed by the process that trains: set dataloader_num_workers=0.")
        given = 0
        for batch in self._batches():
            for values in islice(zip(*batch.values(), strict=True), self.length - given):
                given += 1
                yield dict(zip(batch, values, strict=True))
            if given == self.length:
                return

    def _batches(self) -> Iterator[dict[str, list]]:
        """Masked examples of batches of documents, pass after pass."""
        documents = examples = passes = 0
        while True:
            draw, before = random.Random(f"{self.seed}, pass {passes}"), documents
            texts = shuffle_in_buffer(islice(self.corpus.documents(), self.skip, None), draw)
            while batch := list(islice(texts, BATCH)):
                made = self.make(batch, documents)
                count = len(made["input_ids"])
                yield {**made, **self.mask(made, examples)}
                documents, examples = documents + len(batch), examples + count
            if documents == before:
                raise ValueError(f"The corpus has no document besides the {self.skip} that are held out.")
            passes += 1
