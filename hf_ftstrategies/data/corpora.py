"""Texts for further pre-training: within the task, in its domain, across domains, or named by the user.

No labels are read, and no text of an evaluation split gets in unless it is asked for by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_ftstrategies.data.checks import text_key
from hf_ftstrategies.data.columns import find_layout
from hf_ftstrategies.data.local_files import FileFormat
from hf_ftstrategies.data.lookup import find_splits
from hf_ftstrategies.data.registry import REGISTRY, UNREGISTERED
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset

# Sun et al. 2019, section 5.4.2; Sogou, a topic set too, is Chinese and further pre-trained within the task only.
DOMAINS = {
    "sentiment": ("imdb", "yelp_polarity", "yelp_full"),
    "question": ("trec", "yahoo_answers"),
    "topic": ("ag_news", "dbpedia14k"),
}
CHOICES = ("within_task", "in_domain", "cross_domain")
PARAGRAPH = "\n\n"


@dataclass(frozen=True)
class CorpusPart:
    """What one data set gave to a corpus.

    Args:
        name (`str`): Of the data set.
        splits (`tuple[str, ...]`): The splits that were read.
        documents (`int`): Texts of it in the corpus.
        left_out (`int`): Texts left out because an evaluation split has them.
    """

    name: str
    splits: tuple[str, ...]
    documents: int
    left_out: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "splits": list(self.splits)}


def corpus_names(choice: str, dataset: str) -> tuple[str, ...]:
    """The data sets whose texts a choice stands for.

    Args:
        choice (`str`): `"within_task"` (the data set itself), `"in_domain"` (its domain in `DOMAINS`),
            `"cross_domain"` (all domains), or names and paths of data sets, separated by commas.
        dataset (`str`): The data set that is fine-tuned on.

    Returns:
        `tuple[str, ...]`: Names, the data set itself first where it is among them.

    Raises:
        ValueError: no domain is known for the data set, or a name is close to a choice.

    Paper: Sun et al. 2019, section 5.4.
    """
    if choice == "within_task":
        return (dataset,)
    if choice == "cross_domain":
        names = tuple(name for domain in DOMAINS.values() for name in domain)
    elif choice == "in_domain":
        names = next((domain for domain in DOMAINS.values() if dataset in domain), ())
        if not names:
            known = ", ".join(f"{domain} ({', '.join(sets)})" for domain, sets in DOMAINS.items())
            raise ValueError(
                f"No domain is known for {dataset!r}; the domains are {known}. Name the data sets to pre-train on: "
                f"--further_pretraining {dataset},..."
            )
    else:
        names = tuple(name.strip() for name in choice.split(",") if name.strip())
        for name in names:
            hint = did_you_mean(name, CHOICES)
            if hint and name not in REGISTRY:
                raise ValueError(f"further_pretraining is {choice!r}.{hint}")
    return tuple(sorted(dict.fromkeys(names), key=lambda name: name != dataset))


def load_corpus(
    names: Sequence[str],
    *,
    data_root: str | os.PathLike | None = None,
    splits: Mapping[str, Sequence[str]],
    text_columns: Mapping[str, Sequence[str | None]] | None = None,
    without: Iterable[str] = (),
    rows: int | None = None,
    seed: int = 0,
) -> tuple[Dataset, list[CorpusPart]]:
    """Read the texts of data sets as documents.

    The texts of a row (title and content, sentence and sentence) are one document, a blank line between them.

    Args:
        names (`Sequence[str]`): Data sets, as `load_dataset_splits` takes them.
        data_root (`str` or `PathLike`, *optional*): As there.
        splits (`Mapping[str, Sequence[str]]`): Of each name, the splits to read.
        text_columns (`Mapping`, *optional*): Of each name, text column and second text column of own data.
        without (`Iterable[str]`): Texts to leave out, whatever their white space; those of the evaluation.
        rows (`int`, *optional*): Documents of each data set at most, drawn by `seed`; None = all.
        seed (`int`, *optional*, defaults to 0): Of the draw.

    Returns:
        `tuple[Dataset, list[CorpusPart]]`: Documents in the column `text`, and what each data set gave.

    Raises:
        ValueError: a data set cannot be had or has no such split, or no document is left.
    """
    from datasets import concatenate_datasets

    unwanted = {text_key(text) for text in without}
    documents, parts = [], []
    for name in names:
        found = _read(name, data_root, splits[name], *(text_columns or {}).get(name, (None, None)))
        keep, left_out = [], 0
        for index, text in enumerate(found["text"]):
            if (key := text_key(text)) in unwanted:
                left_out += 1
            elif key:
                keep.append(index)
        if rows is not None and rows < len(keep):
            keep = sorted(np.random.default_rng(seed).permutation(keep)[:rows].tolist())
        if not keep:
            raise ValueError(f"The data set {name!r} has no text for further pre-training in {splits[name]}.")
        documents.append(found.select(keep))
        parts.append(CorpusPart(name, tuple(splits[name]), len(keep), left_out))
    return concatenate_datasets(documents), parts


def _read(
    name: str,
    data_root: str | os.PathLike | None,
    splits: Sequence[str],
    text_column: str | None = None,
    text_pair_column: str | None = None,
) -> Dataset:
    """The documents of some splits of a data set, in the one column `text`."""
    from datasets import concatenate_datasets

    found, source = find_splits(name, data_root, None, FileFormat())
    missing = [split for split in splits if split not in found]
    if missing:
        raise ValueError(f"{source} has no split {missing[0]!r}; it has {', '.join(found)}.")
    columns = document_columns(name, found[splits[0]].column_names, text_column, text_pair_column)
    return concatenate_datasets(
        [
            found[split].map(
                _join,
                batched=True,
                remove_columns=found[split].column_names,
                fn_kwargs={"columns": columns},
                desc=f"read {name}, {split}",
            )
            for split in splits
        ]
    )


def document_columns(
    name: str, found: Sequence[str], text_column: str | None = None, text_pair_column: str | None = None
) -> list[str]:
    """The columns of a data set that make a document.

    Args:
        name (`str`): Of the data set.
        found (`Sequence[str]`): Its columns.
        text_column, text_pair_column (`str`, *optional*): The user's choice.

    Raises:
        ValueError: one of them is not there.
    """
    layout = find_layout(found, REGISTRY.get(name, UNREGISTERED), text_column, text_pair_column, None)
    columns = [column for part in layout.texts.values() for column in part]
    lacking = [column for column in columns if column not in found]
    if lacking:
        raise ValueError(
            f"The data set {name!r} has no column {lacking[0]!r}.{did_you_mean(lacking[0], found)} Its columns: "
            f"{', '.join(found)}."
        )
    return columns


def join_texts(texts: Sequence[str | None]) -> str:
    """The texts of a row as one document."""
    return PARAGRAPH.join(text for text in texts if text)


def _join(batch: Mapping[str, Sequence], columns: Sequence[str]) -> dict[str, list[str]]:
    return {"text": [join_texts(row) for row in zip(*(batch[column] for column in columns), strict=True)]}
