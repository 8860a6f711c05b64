"""Which columns of a raw data set are texts and labels, and the same data under the names of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_ftstrategies.data.local_files import PROBLEM
from hf_ftstrategies.data.registry import DatasetSpec
from hf_ftstrategies.data.tasks import ONE_TEXT, TWO_TEXTS
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset

LABEL = "label"


@dataclass(frozen=True)
class Layout:
    """Where texts and labels are in a raw data set.

    Args:
        texts (`Mapping[str, tuple[str, ...]]`): For each text column of the task, the columns it is made of.
        labels (`tuple[str, ...]`): The label column; several for indicator columns; none without labels.
    """

    texts: Mapping[str, tuple[str, ...]]
    labels: tuple[str, ...]

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The task's names of the text columns."""
        return tuple(self.texts)

    @property
    def arranged_labels(self) -> tuple[str, ...]:
        """The label columns after `arrange`."""
        return self.labels if len(self.labels) > 1 else (LABEL,)


def find_layout(
    columns: Sequence[str],
    spec: DatasetSpec,
    text_column: str | Sequence[str] | None,
    text_pair_column: str | None,
    label_column: str | Sequence[str] | None,
) -> Layout:
    """Decide on the layout: what the user says, else the task's own names, else the registry's.

    Args:
        columns (`Sequence[str]`): Columns of the raw data.
        spec (`DatasetSpec`): The registry's entry, or the empty one.
        text_column (`str` or `Sequence[str]`, *optional*): The user's choice; several are joined.
        text_pair_column (`str`, *optional*): The user's choice for the second text.
        label_column (`str` or `Sequence[str]`, *optional*): The user's choice.
    """
    if text_column is not None or text_pair_column is not None:
        first = _as_tuple(text_column or "text")
        texts = {"text": first}
        if text_pair_column is not None:
            texts = dict(zip(TWO_TEXTS, (first, (text_pair_column,)), strict=True))
    elif spec.columns:
        renamed = not set(spec.columns) <= set(columns)
        texts = dict(spec.columns) if renamed else {name: (name,) for name in spec.columns}
    else:
        pair = "text" not in columns and set(TWO_TEXTS) <= set(columns)
        texts = {name: (name,) for name in (TWO_TEXTS if pair else ONE_TEXT)}
    if label_column is not None:
        return Layout(texts, _as_tuple(label_column))
    own_name = LABEL if spec.label and LABEL in columns else spec.label
    return Layout(texts, (own_name,) if own_name else ())


def arrange(dataset: Dataset, layout: Layout, where: str, need_labels: bool) -> Dataset:
    """Give texts and a single label column the task's names; other columns stay.

    Args:
        dataset (`Dataset`): One raw split.
        layout (`Layout`): Where its texts and labels are.
        where (`str`): The split and its source, for messages.
        need_labels (`bool`): Whether a missing label column is an error.

    Raises:
        ValueError: A column is missing (those found are listed), has two meanings, or holds no strings.
    """
    labels = layout.labels if need_labels or set(layout.labels) <= set(dataset.column_names) else ()
    wanted = [column for part in (*layout.texts.values(), labels) for column in part]
    for column in wanted:
        found = [name for name in dataset.column_names if name != PROBLEM]
        if column not in found:
            raise ValueError(
                f"{where} has no column {column!r}.{did_you_mean(column, found)} Its columns: {', '.join(found)}."
            )
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"A column can be a text or the label, not both; got {', '.join(wanted)}.")
    mapping = {}
    for name, parts in layout.texts.items():
        if len(parts) > 1:
            dataset = dataset.map(_join, batched=True, fn_kwargs={"columns": parts, "name": parts[0]})
            dataset = dataset.remove_columns(list(parts[1:]))
        mapping[parts[0]] = name
    if len(labels) == 1:
        mapping[labels[0]] = LABEL
    shadowed = (set(mapping.values()) - set(mapping)) & set(dataset.column_names)
    dataset = dataset.remove_columns(sorted(shadowed)).rename_columns(mapping)
    _check_texts(dataset, layout.text_columns, where)
    return dataset


def _check_texts(dataset: Dataset, text_columns: Sequence[str], where: str) -> None:
    for column in text_columns:
        kind = getattr(dataset.features[column], "dtype", type(dataset.features[column]).__name__)
        if kind not in ("string", "large_string", "null"):
            raise ValueError(f"{where}: the text column {column!r} holds {kind}, not strings.")


def join_columns(batch: Mapping[str, Sequence], columns: Sequence[str]) -> list[str]:
    """One text of several columns for each row, without those that are missing or empty."""
    rows = zip(*(batch[column] for column in columns), strict=True)
    return [" ".join(part for part in row if part) for row in rows]


def _join(batch: Mapping[str, Sequence], columns: Sequence[str], name: str) -> dict[str, list[str]]:
    return {name: join_columns(batch, columns)}


def _as_tuple(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
