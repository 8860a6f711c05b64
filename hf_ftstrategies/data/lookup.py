"""Raw splits by name: from a data root, an installed package, the user's files or the Hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hf_ftstrategies.data.bbc_news import read_bbc_news
from hf_ftstrategies.data.local_files import SUFFIXES, FileFormat, read_local
from hf_ftstrategies.data.registry import REGISTRY, DatasetSpec
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Splits = dict[str, Dataset] | dict[str, IterableDataset]

ON_HUB = " on the Hub"  # ends the source of what came from there
DATA_ROOT_VARIABLE = "HF_FTSTRATEGIES_DATA"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
PACKAGED = {"bbc_news": read_bbc_news}


def find_splits(
    name: str,
    data_root: str | os.PathLike | None,
    config_name: str | None,
    file_format: FileFormat,
    streaming: bool = False,
) -> tuple[Splits, str]:
    """Find a data set in the data root, the registry, the file system or on the Hub, in this order.

    Args:
        name (`str`): Registered name, path or Hub id.
        data_root (`str` or `PathLike`, *optional*): Folder of data sets; defaults to `$HF_FTSTRATEGIES_DATA`.
        config_name (`str`, *optional*): Configuration of a Hub data set.
        file_format (`FileFormat`): How local text files are written.
        streaming (`bool`, *optional*, defaults to `False`): Read the rows only when they are iterated over.

    Returns:
        `tuple[dict[str, Dataset], str]`: The splits (`IterableDataset` if streaming), `train` first, and where
        they came from.

    Raises:
        ValueError: Unknown name (the nearest is suggested), nothing to be loaded, or (not streaming) an empty split.
    """
    root = data_root or os.environ.get(DATA_ROOT_VARIABLE)
    splits, source = _find(name, root, config_name, file_format, streaming)
    for split, rows in splits.items():
        if not streaming and not len(rows):
            raise ValueError(f"{source}: the split {split!r} is empty.")
    return dict(sorted(splits.items(), key=lambda item: _place(item[0]))), source


def _find(
    name: str, root: str | os.PathLike | None, config_name: str | None, file_format: FileFormat, streaming: bool
) -> tuple[Splits, str]:
    if root is not None:
        if not Path(root).is_dir():
            raise ValueError(f"The data root {str(root)!r} (data_root or ${DATA_ROOT_VARIABLE}) is no folder.")
        folder = Path(root) / name
        if folder.is_dir() and ".." not in Path(name).parts:  # a name does not lead out of the root
            return read_local(folder, file_format, streaming), str(folder)
    if name in PACKAGED:
        rows = PACKAGED[name]()
        rows = rows.to_iterable_dataset() if streaming else rows
        return {"train": rows}, f"the articles of {name} in an installed package"
    if name in REGISTRY:
        return _registered_on_hub(name, REGISTRY[name], config_name, streaming)
    path = Path(name).expanduser()
    if path.exists():
        return read_local(path, file_format, streaming), str(path)
    if _HUB_ID.fullmatch(name) and path.suffix not in SUFFIXES:
        return _load_from_hub(name, config_name, None, streaming), name + ON_HUB
    raise ValueError(
        f"Unknown data set {name!r}: no registered name, no file or folder, no Hub id such as 'user/name'."
        f"{did_you_mean(name, REGISTRY)} Registered: {', '.join(sorted(REGISTRY))}."
    )


def _registered_on_hub(name: str, spec: DatasetSpec, config_name: str | None, streaming: bool) -> tuple[Splits, str]:
    if spec.hub is None:
        raise ValueError(
            f"{name!r} has no copy on the Hub that loads without running code. Put it into a data root "
            f"(data_root or ${DATA_ROOT_VARIABLE}) as {name}/train.parquet, with the columns "
            f"{', '.join(spec.columns)} and {spec.label or 'no label'}."
        )
    splits = _load_from_hub(spec.hub, config_name or spec.hub_config, spec.hub_revision, streaming)
    return {spec.hub_splits.get(split, split): rows for split, rows in splits.items()}, spec.hub + ON_HUB


def _load_from_hub(hub_id: str, config_name: str | None, revision: str | None, streaming: bool) -> Splits:
    import datasets

    try:
        return datasets.load_dataset(hub_id, config_name, revision=revision, streaming=streaming)
    except (OSError, RuntimeError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"Cannot load {hub_id!r} from the Hub: {error} Without the Hub, give a data root (data_root or "
            f"${DATA_ROOT_VARIABLE}) with the data set in it, or a local file."
        ) from error


def _place(split: str) -> tuple[int, str]:
    known = ("train", "validation", "test")
    return (known.index(split) if split in known else len(known), split)
