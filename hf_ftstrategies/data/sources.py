"""From a name to rows: registered data sets, the Hub, and the user's own files, all in the same columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hf_ftstrategies.data.cleaning import check_rule, class_names, clean_splits
from hf_ftstrategies.data.columns import LABEL, Layout, arrange, find_layout
from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.local_files import FileFormat
from hf_ftstrategies.data.lookup import ON_HUB, find_splits
from hf_ftstrategies.data.registry import REGISTRY, UNREGISTERED, DatasetSpec
from hf_ftstrategies.data.tasks import ONE_TEXT, TASKS, TaskType, get_task

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_dataset_splits(
    name: str,
    *,
    data_root: str | os.PathLike | None = None,
    task: str | None = None,
    text_column: str | Sequence[str] | None = None,
    text_pair_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    config_name: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    quotes: bool = True,
    column_names: Sequence[str] | None = None,
    on_bad_rows: str = "error",
) -> tuple[DatasetDict, DatasetInfo]:
    """Load a data set into the columns of its task: `text` or `sentence1` and `sentence2`, and `label`.

    A name is looked up in this order: a folder of `data_root`, the registry (package or Hub), a local file or
    folder, the Hub. Columns that are not texts or labels are kept. Labels become indices with names, numbers,
    or 0/1 lists, as the task says. A split other than `train` may be without labels (a missing column, or all
    of them missing or -1); its label column is then removed.

    Args:
        name (`str`): Name in `REGISTRY`, path of a file (`.csv`, `.tsv`, `.jsonl`, `.parquet`) or folder (of
            `SPLIT.csv` and the like, or `CLASS/*.txt`), or Hub id such as `"user/name"`.
        data_root (`str` or `PathLike`, *optional*): Folder of data sets as `NAME/SPLIT.parquet`; defaults to
            the environment variable `HF_FTSTRATEGIES_DATA`.
        task (`str`, *optional*): Name of the task type; defaults to the registry's, else `"single_text"` or
            `"text_pair"`, whichever the columns tell.
        text_column (`str` or `Sequence[str]`, *optional*): Column with the text; several are joined by a
            space. Defaults to the registry's, else `text` or `sentence1`.
        text_pair_column (`str`, *optional*): Column with the second text.
        label_column (`str` or `Sequence[str]`, *optional*): Column with the label; for `"multi_label"` either
            one column of lists, or several columns of 0 and 1 whose names are the labels. Defaults to the
            registry's, else `label`.
        label_names (`Sequence[str]`, *optional*): Names of label 0, 1, ...; defaults to those the data carry.
        config_name (`str`, *optional*): Configuration of a Hub data set.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Encoding of local text files.
        delimiter (`str`, *optional*): Between the cells of a local CSV file; by default as its suffix says.
        quotes (`bool`, *optional*, defaults to `True`): Whether `"` encloses cells of local CSV files.
        column_names (`Sequence[str]`, *optional*): Columns of local CSV files that have no header line.
        on_bad_rows (`str`, *optional*, defaults to `"error"`): `"error"` refuses rows with missing or empty
            texts, missing or unknown labels, or unreadable cells; `"drop"` leaves them out and counts them in
            `findings`.

    Returns:
        `tuple[DatasetDict, DatasetInfo]`: The splits, and what is known about them.

    Raises:
        ValueError: Unknown name or column (what was found and the nearest match are listed), unreadable file,
            bad rows (with counts and row numbers), an empty split, one class only, or label names that differ
            between splits.
    """
    check_rule(on_bad_rows)
    file_format = FileFormat(encoding, delimiter, quotes, tuple(column_names) if column_names else None)
    splits, source = find_splits(name, data_root, config_name, file_format)
    spec = REGISTRY.get(name, UNREGISTERED)
    columns = next(iter(splits.values())).column_names
    layout = find_layout(columns, spec, text_column, text_pair_column, label_column)
    usual = spec.label_names if label_column is None else ()
    return prepare_splits(name, splits, source, layout, task, tuple(label_names or ()), usual, on_bad_rows)


def prepare_splits(
    name: str,
    splits: Mapping[str, Dataset],
    source: str,
    layout: Layout,
    task: str | None,
    label_names: tuple[str, ...],
    default_names: tuple[str, ...],
    on_bad_rows: str,
) -> tuple[DatasetDict, DatasetInfo]:
    """Make raw splits ready, as `load_dataset_splits` does with those it found.

    Args:
        name (`str`), task (`str`, *optional*), on_bad_rows (`str`): As there.
        splits (`Mapping[str, Dataset]`), source (`str`): As `find_splits` gives them.
        layout (`Layout`): Of the raw columns.
        label_names (`tuple[str, ...]`), default_names (`tuple[str, ...]`): As in `clean_splits`.
    """
    from datasets import DatasetDict

    spec = REGISTRY.get(name, UNREGISTERED)
    findings = _size_findings(splits, spec)
    task = task or spec.task or ("single_text" if layout.text_columns == ONE_TEXT else "text_pair")
    if task == spec.task and task not in TASKS:
        # A registered task whose type is still to come: the rows as they are.
        label, names, metrics = "".join(layout.labels), class_names(splits, layout.labels), spec.metrics
    else:
        task_type = _check_task(get_task(task), layout)
        label, metrics = LABEL, (spec.metrics if task == spec.task else ()) or task_type.metrics
        splits, names, notes = _clean(splits, layout, task_type, label_names, default_names, on_bad_rows, source)
        findings += notes
    return DatasetDict(splits), DatasetInfo(
        name=name,
        task=task,
        text_columns=layout.text_columns,
        label_column=label,
        label_names=names,
        metrics=metrics,
        metric=next(iter(metrics), ""),
        source=source,
        licence=spec.licence,
        hub_id=source.removesuffix(ON_HUB) if source.endswith(ON_HUB) else spec.hub,
        hub_config=spec.hub_config,
        language=spec.language,
        rows={split: len(rows) for split, rows in splits.items()},
        unlabelled=tuple(split for split, rows in splits.items() if label not in rows.column_names),
        findings=tuple(findings),
    )


def _clean(
    splits: Mapping[str, Dataset],
    layout: Layout,
    task: TaskType,
    label_names: tuple[str, ...],
    default_names: tuple[str, ...],
    on_bad_rows: str,
    source: str,
) -> tuple[dict[str, Dataset], tuple[str, ...], list[str]]:
    """The splits in the columns of the task, without bad rows; names of the labels; what was found."""
    arranged = {
        split: arrange(rows, layout, f"{source}, split {split!r}", need_labels=split == "train")
        for split, rows in splits.items()
    }
    return clean_splits(
        arranged,
        layout,
        task.label_kind,
        label_names=label_names,
        default_names=default_names,
        on_bad_rows=on_bad_rows,
        source=source,
    )


def _check_task(task: TaskType, layout: Layout) -> TaskType:
    if layout.text_columns not in task.text_columns:
        needed = " or ".join(" and ".join(columns) for columns in task.text_columns)
        raise ValueError(
            f"The task type {task.name!r} needs {needed}; got one column for each of "
            f"{', '.join(layout.text_columns)}. Give text_column and text_pair_column, or another task."
        )
    return task


def _size_findings(splits: Mapping[str, Dataset], spec: DatasetSpec) -> list[str]:
    return [
        f"{split}: {len(rows):,} rows where {spec.rows[split]:,} are published"
        for split, rows in splits.items()
        if len(rows) != spec.rows.get(split, len(rows))
    ]
