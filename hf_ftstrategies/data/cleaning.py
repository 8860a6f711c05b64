"""Arranged splits made ready: labels encoded, bad rows refused or dropped, what is odd written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hf_ftstrategies.data.checks import Problem, text_findings, text_problems
from hf_ftstrategies.data.columns import LABEL, Layout
from hf_ftstrategies.data.labels import REPORTED, check_variety, encode_labels, is_hidden, read_indicators
from hf_ftstrategies.data.local_files import PROBLEM

if TYPE_CHECKING:
    from datasets import Dataset

SHOWN_PROBLEMS = 10


def clean_splits(
    splits: Mapping[str, Dataset],
    layout: Layout,
    label_kind: str,
    *,
    label_names: Sequence[str] = (),
    default_names: Sequence[str] = (),
    on_bad_rows: str,
    source: str,
) -> tuple[dict[str, Dataset], tuple[str, ...], list[str]]:
    """Encode the labels, refuse or drop bad rows, and report duplicates.

    Args:
        splits (`Mapping[str, Dataset]`): Splits with the task's column names; one without the label columns,
            or with all labels missing, has no labels (`train` must have them).
        layout (`Layout`): Their columns.
        label_kind (`str`): As `TaskType.label_kind`.
        label_names (`Sequence[str]`, *optional*): Names of label 0, 1, ... that the user gives. Without them
            those in the data's features, else `default_names`, else the labels themselves.
        default_names (`Sequence[str]`, *optional*): Names known for this data set.
        on_bad_rows (`str`): `"error"` or `"drop"`.
        source (`str`): Where the rows came from, for messages.

    Returns:
        `tuple[dict[str, Dataset], tuple[str, ...], list[str]]`: The clean splits, the label names, and what
        was dropped or is worth knowing.

    Raises:
        ValueError: Bad rows with `on_bad_rows="error"`, no rows left, or unusable labels.
    """
    columns = layout.arranged_labels
    raw = _raw_labels(splits, columns, by_name=not label_names)
    if not raw:
        raise ValueError(f"{source}: no split has labels in {', '.join(layout.labels)}.")
    indicators = columns if len(columns) > 1 else ()
    names = label_names or class_names(splits, columns) or indicators or default_names
    labels, names, problems = encode_labels(raw, label_kind, names)
    for split, rows in splits.items():
        problems += text_problems(split, rows, layout.text_columns)
    notes = _refuse_or_note(problems, on_bad_rows, source)

    cleaned = {}
    for split, rows in splits.items():
        bad = {row for problem in problems if problem.split == split for row in problem.rows}
        if len(bad) == len(rows):
            raise ValueError(f"{source}: no row of the split {split!r} is left. " + " ".join(notes))
        cleaned[split] = _finish(rows, labels.get(split), columns, label_kind, names, bad)
    first, first_labels = next(iter(labels.items()))
    check_variety(first, first_labels, names)
    return cleaned, names, notes + [str(finding) for finding in text_findings(cleaned, layout.text_columns)]


def check_rule(on_bad_rows: str) -> None:
    """Refuse a rule for bad rows that is not known."""
    if on_bad_rows not in ("error", "drop"):
        raise ValueError(f'on_bad_rows must be "error" or "drop", got {on_bad_rows!r}.')


def class_names(splits: Mapping[str, Dataset], label_columns: Sequence[str]) -> tuple[str, ...]:
    """Give the label names that the data's own `ClassLabel` features carry, or none.

    Raises:
        ValueError: They differ between splits.
    """
    found = {}
    for split, rows in splits.items():
        for column in label_columns:
            feature = rows.features.get(column)
            names = getattr(getattr(feature, "feature", feature), "names", None)
            if names:
                found[split] = tuple(names)
    if len(set(found.values())) > 1:
        listed = "; ".join(f"{split} has {', '.join(names)}" for split, names in found.items())
        raise ValueError(f"The label names differ between splits: {listed}. Give the right ones in label_names.")
    return next(iter(found.values()), ())


def _raw_labels(splits: Mapping[str, Dataset], label_columns: Sequence[str], by_name: bool) -> dict[str, list[Any]]:
    """Labels of the splits that have some."""
    raw = {}
    for split, rows in splits.items():
        if not set(label_columns) <= set(rows.column_names):
            continue
        names = class_names({split: rows}, label_columns) if by_name else ()
        labels = read_labels({column: rows[column][:] for column in label_columns}, names)
        if split == "train" or not is_hidden(labels):
            raw[split] = labels
        if PROBLEM in rows.column_names:
            unread = rows[PROBLEM][:]
            labels[:] = [label if what is None else REPORTED for label, what in zip(labels, unread, strict=True)]
    return raw


def read_labels(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> list[Any]:
    """Raw labels of rows from their label columns, by name where the column's feature has names.

    Args:
        columns (`Mapping[str, Sequence[Any]]`): The label column; several for indicators.
        names (`Sequence[str]`): Of the feature; empty if it has none.
    """
    if len(columns) > 1:
        return read_indicators(columns)
    (labels,) = columns.values()
    return [_name_of(label, names) for label in labels] if names else labels


def _name_of(label: Any, names: Sequence[str]) -> Any:
    if isinstance(label, list):
        return [_name_of(one, names) for one in label]
    if label == -1:
        return None
    return names[label] if label is not None and 0 <= label < len(names) else label


def _refuse_or_note(problems: Sequence[Problem], on_bad_rows: str, source: str) -> list[str]:
    if on_bad_rows == "drop":
        return [f"dropped: {problem}" for problem in problems]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:SHOWN_PROBLEMS])
        more = f"\n  and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
        raise ValueError(
            f"{source} has bad rows (rows are counted from 0):{shown}{more}\n"
            "Repair them, or leave them out with on_bad_rows='drop'."
        )
    return []


def _finish(
    rows: Dataset,
    labels: Sequence[Any] | None,
    label_columns: Sequence[str],
    label_kind: str,
    names: Sequence[str],
    bad: set[int],
) -> Dataset:
    """The good rows, with the encoded labels in one column."""
    from datasets import ClassLabel, List, Value

    if PROBLEM in rows.column_names:
        rows = rows.remove_columns(PROBLEM)
    if bad:
        rows = rows.select([row for row in range(len(rows)) if row not in bad])
    old_columns = [column for column in {LABEL, *label_columns} if column in rows.column_names]
    if labels is None:
        return rows.remove_columns(old_columns)
    features = {
        "class": ClassLabel(names=list(names)) if names else None,
        "number": Value("float32"),
        "classes": List(Value("float32")),
    }
    if label_kind != "classes" and rows.features.get(LABEL) == features[label_kind]:
        return rows  # already what is wanted, and on disk rather than in memory
    good = [label for row, label in enumerate(labels) if row not in bad]
    return rows.remove_columns(old_columns).add_column(LABEL, good, feature=features[label_kind])
