"""The user's own files: CSV, TSV, JSON lines, Parquet, a folder of splits, or a folder of class folders.

CSV and JSON lines are read row by row into the `datasets` cache, so a file may be larger than memory; streamed,
they are read row by row each time, so it may be larger than the disk's free space too. Their
cells stay strings; what a label means is decided later, for all rows at once. A row that cannot be read
becomes a row with a `PROBLEM` text, so that every bad row is counted and the user can choose to drop them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

PROBLEM = "__problem__"
SPLIT_ALIASES = {"dev": "validation", "valid": "validation", "val": "validation"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".jsonl", ".parquet")


@dataclass(frozen=True)
class FileFormat:
    """How text files are written.

    Args:
        encoding (`str`, *optional*, defaults to `"utf-8"`): Character encoding; a byte order mark is skipped.
        delimiter (`str`, *optional*): One character between cells; by default `,` for `.csv`, tab for `.tsv`.
        quotes (`bool`, *optional*, defaults to `True`): Whether `"` encloses cells. GLUE's TSV files have
            none.
        column_names (`tuple[str, ...]`, *optional*): Names of the columns of a file without a header line.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    quotes: bool = True
    column_names: tuple[str, ...] | None = None


def read_local(
    path: Path, file_format: FileFormat, streaming: bool = False
) -> dict[str, Dataset] | dict[str, IterableDataset]:
    """Read a file (one split, `train`), a folder of `SPLIT.csv` and the like, or a folder of `CLASS/*.txt`.

    Args:
        path (`Path`): An existing file or folder.
        file_format (`FileFormat`): How text files are written.
        streaming (`bool`, *optional*, defaults to `False`): Read the rows only when they are iterated over.

    Returns:
        `dict[str, Dataset]`, or `dict[str, IterableDataset]` if streaming: Raw columns of each split; `dev`,
        `valid` and `val` are called `validation`.

    Raises:
        ValueError: Nothing readable, two files for one split, or a file that is damaged or of another format.
    """
    if path.is_file():
        return {"train": _read_file(path, file_format, streaming)}
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files and any(path.glob("*/*.txt")):
        rows = read_class_folders(path, encoding=file_format.encoding)
        return {"train": rows.to_iterable_dataset() if streaming else rows}
    if not files:
        found = ", ".join(sorted(file.name for file in path.iterdir())) or "nothing"
        raise ValueError(
            f"The folder {path} has no SPLIT{', SPLIT'.join(SUFFIXES)} and no CLASS/*.txt; it holds: {found}."
        )
    by_split: dict[str, Path] = {}
    for file in files:
        split = SPLIT_ALIASES.get(file.stem, file.stem)
        if split in by_split:
            raise ValueError(f"{by_split[split]} and {file} are both the split {split!r}; give one of them as a file.")
        by_split[split] = file
    return {split: _read_file(file, file_format, streaming) for split, file in by_split.items()}


def read_class_folders(path: Path, encoding: str = "utf-8", fallback_encoding: str | None = None) -> Dataset:
    """Read `CLASS/*.txt`, one text a file, in the order of class and file name.

    Args:
        path (`Path`): The folder.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Encoding of the files.
        fallback_encoding (`str`, *optional*): Encoding of the files that do not decode; `None` refuses them.

    Returns:
        `Dataset`: Columns `text` and `label` (the folder's name), held in memory.

    Raises:
        ValueError: No such files, or one that does not decode.
    """
    from datasets import Dataset

    rows: dict[str, list[str]] = {"text": [], "label": []}
    for file in sorted(path.glob("*/*.txt")):
        try:
            text = file.read_text(_skip_mark(encoding))
        except UnicodeDecodeError as error:
            if fallback_encoding is None:
                raise ValueError(_not_decoded(file, encoding)) from error
            text = file.read_text(fallback_encoding)
        rows["text"].append(text)
        rows["label"].append(file.parent.name)
    if not rows["text"]:
        raise ValueError(f"Found no texts as CLASS/*.txt in {path}.")
    return Dataset.from_dict(rows)


def _read_file(path: Path, file_format: FileFormat, streaming: bool) -> Dataset | IterableDataset:
    import pyarrow
    from datasets import Dataset, Features, IterableDataset, Value
    from datasets.exceptions import DatasetsError

    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"Cannot read {path}: unknown file type {path.suffix!r}.{did_you_mean(path.suffix, SUFFIXES)} "
            f"Known: {', '.join(SUFFIXES)}."
        )
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path, streaming)
        columns = tuple(_header(path, file_format) if path.suffix in DELIMITERS else _keys(path, file_format))
        features = Features({name: Value("string") for name in (*columns, PROBLEM)})
        # The file's size and time make a changed file a new entry of the cache.
        stat = path.stat()
        stamp = (stat.st_size, stat.st_mtime_ns)
        arguments = {"path": path, "file_format": file_format, "columns": columns, "stamp": stamp}
        if next(_rows(**arguments), None) is None:
            raise ValueError(f"{path} has no rows below its header line.")
        if streaming:
            return IterableDataset.from_generator(_streamed_rows, features=features, gen_kwargs=arguments)
        return Dataset.from_generator(_rows, features=features, gen_kwargs=arguments)
    except (DatasetsError, pyarrow.ArrowException, OSError, UnicodeError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, UnicodeError):
            raise ValueError(_not_decoded(path, file_format.encoding)) from error
        raise ValueError(f"Cannot read {path}: {cause}") from error


def _read_parquet(path: Path, streaming: bool) -> Dataset | IterableDataset:
    from datasets import Dataset, load_dataset
    from pyarrow.parquet import read_metadata

    if read_metadata(path).num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    try:
        if streaming:
            return load_dataset("parquet", data_files=str(path), split="train", streaming=True)
        return Dataset.from_parquet(str(path))
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"Cannot read {path}: what `datasets` wrote into it about its columns is damaged ({error!r}). Write the "
            "file again, without the metadata 'huggingface'."
        ) from error


def _rows(
    path: Path, file_format: FileFormat, columns: tuple[str, ...], stamp: tuple
) -> Iterator[dict[str, str | None]]:
    """Rows of a text file as strings; one that does not fit has a problem instead of cells."""
    cells = _csv_cells if path.suffix in DELIMITERS else _json_cells
    empty = dict.fromkeys((*columns, PROBLEM))
    for row in cells(path, file_format, columns):
        yield {**empty, **(row if isinstance(row, dict) else {PROBLEM: row})}


def _streamed_rows(path: Path, file_format: FileFormat, **arguments: Any) -> Iterator[dict[str, str | None]]:
    """The same, read in the middle of a training: what is wrong is said as at its start."""
    try:
        yield from _rows(path, file_format, **arguments)
    except UnicodeError as error:
        raise ValueError(_not_decoded(path, file_format.encoding)) from error


def _csv_cells(path: Path, file_format: FileFormat, columns: tuple[str, ...]) -> Iterator[dict | str]:
    rows = _csv_lines(path, file_format)
    if file_format.column_names is None:
        next(rows)
    for cells in rows:
        if len(cells) == len(columns):
            yield dict(zip(columns, cells, strict=True))
        else:
            yield f"with {len(cells)} cells where there are {len(columns)} columns"


def _csv_lines(path: Path, file_format: FileFormat) -> Iterator[list[str]]:
    csv.field_size_limit(2**31 - 1)  # the default refuses texts of more than 128 KiB
    with path.open(encoding=_skip_mark(file_format.encoding), newline="") as file:
        reader = csv.reader(
            file,
            delimiter=file_format.delimiter or DELIMITERS[path.suffix],
            quoting=csv.QUOTE_MINIMAL if file_format.quotes else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            yield from filter(None, reader)
        except csv.Error as error:
            raise ValueError(
                f"Cannot read {path} at line {reader.line_num}: {error}. If quotation marks in this file do "
                "not enclose cells, give quotes=False."
            ) from error


def _header(path: Path, file_format: FileFormat) -> Sequence[str]:
    if file_format.column_names is not None:
        return file_format.column_names
    names = next(_csv_lines(path, file_format), None)
    if names is None:
        raise ValueError(f"{path} is empty.")
    if len(names) == 1:
        other = next((mark for mark in ",\t;|" if mark in names[0]), None)
        if other is not None:
            raise ValueError(
                f"{path} has a single column, {names[0]!r}; its cells seem to be separated by {other!r}. "
                f"Give delimiter={other!r}."
            )
    if "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"The header line of {path} has empty or repeated names: {names}. If the file has no header "
            "line, give column_names."
        )
    return names


def _json_cells(path: Path, file_format: FileFormat, columns: tuple[str, ...]) -> Iterator[dict | str]:
    with path.open(encoding=_skip_mark(file_format.encoding)) as file:
        for line in filter(str.strip, file):
            row = _json_object(line)
            if row is None:
                yield "that are not a JSON object"
                continue
            cells = {name: _as_text(row.get(name)) for name in columns}
            yield "with half a character (\\ud800 to \\udfff)" if any(map(_is_torn, cells.values())) else cells


def _keys(path: Path, file_format: FileFormat) -> list[str]:
    """All keys of the file: a key may be missing in its first lines."""
    keys: dict[str, None] = {}
    with path.open(encoding=_skip_mark(file_format.encoding)) as file:
        for line in filter(str.strip, file):
            keys.update(dict.fromkeys(_json_object(line) or ()))
    if not keys:
        raise ValueError(f"{path} has no line with a JSON object.")
    return list(keys)


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, brackets without end
        return None
    return row if isinstance(row, dict) else None


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_torn(text: str | None) -> bool:
    """Whether one half of a surrogate pair stands alone, as where JSON was cut; no tokenizer takes such a text."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return True
    return False


def _skip_mark(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding


def _not_decoded(path: Path, encoding: str) -> str:
    """Say where a file stops being what its encoding promises."""
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return f"{path} is not {encoding} but UTF-16; give encoding='utf-16'."
        file.seek(0)
        for number, line in enumerate(file, start=1):
            try:
                line.decode(encoding)
            except UnicodeError:
                return (
                    f"{path} is not {encoding} in line {number}: {line[:60]!r}. Give its encoding, often "
                    "encoding='latin-1' or encoding='gb18030'."
                )
    return f"{path} is not {encoding}; give its encoding."
