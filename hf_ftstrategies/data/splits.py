"""The splits of a run: those the data set has, cut from train where it has none, and subsets of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.sampling import few_shot, stratified_split, zhang_halves, zhang_subset

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

VALIDATION_SHARE = 0.1
TEST_SHARE = 0.2


def make_splits(
    dataset: DatasetDict,
    info: DatasetInfo,
    *,
    train_rows: int | None = None,
    validation_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
    scheme: str = "standard",
) -> tuple[dict[str, Dataset], list[str]]:
    """Splits `train`, `validation` and, where labels of it are to be had, `test`.

    Validation is never taken from test: a data set without it gives a stratified part of train, and one with
    neither (a single file) a part for each. A labelled validation split without a labelled test split (GLUE)
    stays the only evaluation.

    Args:
        dataset (`DatasetDict`), info (`DatasetInfo`): From `load_dataset_splits`.
        train_rows, validation_rows, test_rows (`int`, *optional*): Rows to use; None = all there are, or a
            tenth (validation) and a fifth (test) of train where they are cut from it.
        seed (`int`, *optional*, defaults to 0): Of cuts and subsets.
        scheme (`str`, *optional*, defaults to `"standard"`): `"zhang"`: validation and test are the halves of
            the development set, and `train_rows` are drawn, as Zhang et al. 2021 do (with seeds of their own).

    Returns:
        `tuple[dict[str, Dataset], list[str]]`: The splits, and a note on each that was cut or reduced.

    Raises:
        ValueError: no train split, or more rows asked for than there are.
    """
    labelled = {name: rows for name, rows in dataset.items() if name not in info.unlabelled}
    if "train" not in labelled:
        raise ValueError(f"{info.source} has the labelled splits {', '.join(labelled) or 'none'}, but no train split.")
    if scheme == "zhang":
        return _zhang(labelled, train_rows)
    wanted = {"validation": validation_rows, "test": test_rows, "train": train_rows}
    missing = [name for name in ("validation", "test") if name not in labelled]
    if missing == ["test"]:
        missing = []
        if test_rows is not None:
            raise ValueError(f"test_rows is {test_rows}, but {info.source} has no labelled test split.")
    splits, notes = _cut_from_train(labelled, wanted, missing, seed)
    for name in ("train", "validation", "test"):
        if name not in splits and name in labelled:
            splits[name], reduced = subset(labelled[name], name, wanted[name], seed)
            notes += reduced
    return {name: splits[name] for name in ("train", "validation", "test") if name in splits}, notes


def _zhang(labelled: dict[str, Dataset], train_rows: int | None) -> tuple[dict[str, Dataset], list[str]]:
    if "validation" not in labelled:
        raise ValueError("split_scheme='zhang' halves a validation split, and this data set has none.")
    splits = {"train": labelled["train"], **zhang_halves(labelled["validation"])}
    notes = ["validation and test: halves of the published development set (Zhang et al. 2021)"]
    if train_rows is not None:
        splits["train"] = zhang_subset(splits["train"], train_rows)
        notes.append(f"train: {len(splits['train']):,} rows drawn as in Zhang et al. 2021")
    return splits, notes


def _cut_from_train(
    labelled: dict[str, Dataset], wanted: dict[str, int | None], missing: list[str], seed: int
) -> tuple[dict[str, Dataset], list[str]]:
    """Parts of train for the missing splits, and what is left of it for train."""
    if not missing:
        return {}, []
    whole = labelled["train"]
    share = {"validation": VALIDATION_SHARE, "test": TEST_SHARE}
    sizes = {name: wanted[name] or max(1, round(share[name] * len(whole))) for name in missing}
    left = len(whole) - sum(sizes.values())
    sizes["train"] = wanted["train"] or left
    if left < 1 or sizes["train"] > left:
        asked = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise ValueError(f"The rows asked for ({asked}) are more than the {len(whole):,} that train has.")
    parts = stratified_split(whole, sizes, seed)
    notes = [f"{name}: {len(parts[name]):,} rows cut from train, stratified, seed {seed}" for name in missing]
    if len(parts["train"]) < left:
        notes.append(f"train: {len(parts['train']):,} of the remaining {left:,} rows, stratified, seed {seed}")
    return parts, notes


def subset(rows: Dataset, name: str, count: int | None, seed: int) -> tuple[Dataset, list[str]]:
    """A stratified part of a split, or all of it, and the note on it.

    Args:
        rows (`Dataset`), name (`str`): The split.
        count (`int`, *optional*): Rows to use; None = all.
        seed (`int`): Of the draw.

    Raises:
        ValueError: more rows asked for than there are.
    """
    if count is None or count == len(rows):
        return rows, []
    if count > len(rows):
        raise ValueError(f"{name}_rows is {count:,}, but the split has {len(rows):,} rows.")
    return few_shot(rows, count=count, seed=seed), [f"{name}: {count:,} of {len(rows):,} rows, stratified, seed {seed}"]
