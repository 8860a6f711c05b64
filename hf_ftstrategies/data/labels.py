"""Labels as they come (names, numbers, strings, lists) turned into what a model trains on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hf_ftstrategies.data.checks import Problem, group_problems
from hf_ftstrategies.suggest import did_you_mean

WHOLE = re.compile(r"-?\d+")
MISSING_INDEX = "-1"  # the Hub's mark of a hidden label


class Fault(str):
    """What is wrong with one label, standing in its place."""


REPORTED = Fault("")  # a row whose fault is reported elsewhere
MISSING = Fault("without a label")


def encode_labels(
    columns: Mapping[str, Sequence[Any]], kind: str, names: Sequence[str]
) -> tuple[dict[str, list], tuple[str, ...], list[Problem]]:
    """Encode the label column of every split.

    Args:
        columns (`Mapping[str, Sequence[Any]]`): Raw labels of each split; the first split tells the names
            where none are given.
        kind (`str`): `"class"`, `"number"` or `"classes"`, see `TaskType.label_kind`.
        names (`Sequence[str]`): Names of label 0, 1, ...; if empty, the distinct labels of the first split,
            words by alphabet and whole numbers by size. Labels that are numbers while no name is one of them
            are indices.

    Returns:
        `tuple[dict[str, list], tuple[str, ...], list[Problem]]`: The labels of each split (a bad one is a
        `Fault`), the label names (none for `"number"`), and the problems.

    Raises:
        ValueError: Words and numbers are mixed, so that it is not clear what the names are.
    """
    read = _READERS[kind]
    values = {split: [read(label) for label in labels] for split, labels in columns.items()}
    if kind == "number":
        names, encoded = (), values
    else:
        tokens = list(_flat(next(iter(values.values()))))
        names = tuple(names) or _names_of(tokens)
        encode = _token_encoder(kind, names, tokens)
        encoded = {split: [encode(label) for label in labels] for split, labels in values.items()}
    problems = []
    for split, labels in encoded.items():
        faults = ((row, str(label)) for row, label in enumerate(labels) if isinstance(label, Fault) and label)
        problems += group_problems(split, faults)
    return encoded, names, problems


def label_encoder(kind: str, names: Sequence[str], sample: Iterable[Any]) -> Callable[[Any], Any]:
    """Encode one label after the other, where not all of them are known; as `encode_labels` otherwise.

    Args:
        kind (`str`), names (`Sequence[str]`): As there; the names must be known, but for `"number"`.
        sample (`Iterable[Any]`): Some raw labels, which tell whether numbers are names or indices.

    Returns:
        `Callable`: Makes an encoded label, or a `Fault`, of a raw one.
    """
    read = _READERS[kind]
    if kind == "number":
        return read
    encode = _token_encoder(kind, names, _flat(read(label) for label in sample))
    return lambda label: encode(read(label))


def read_indicators(columns: Mapping[str, Sequence[Any]]) -> list[list[str] | Fault]:
    """Turn columns of 0 and 1, one for each label name, into the list of names of every row."""
    rows = []
    for cells in zip(*columns.values(), strict=True):
        tokens = [_token(cell) for cell in cells]
        if set(tokens) <= {"0", "1"}:
            rows.append([name for name, token in zip(columns, tokens, strict=True) if token == "1"])
        else:
            rows.append(Fault("whose label columns are not all 0 or 1"))
    return rows


def is_hidden(labels: Sequence[Any]) -> bool:
    """Tell whether no row has a label: all are missing or -1, as in the test splits of GLUE on the Hub."""
    return all(_token(label) in (MISSING, MISSING_INDEX) for label in labels)


def check_variety(split: str, labels: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse a split whose labels are all the same.

    Args:
        split (`str`): Its name.
        labels (`Sequence[Any]`): Encoded labels; faults do not count.
        names (`Sequence[str]`): Names of the classes.

    Raises:
        ValueError: There are labels, but not two different ones.
    """
    labels = [label for label in labels if not isinstance(label, Fault)]
    if labels and all(label == labels[0] for label in labels):
        only = names[labels[0]] if isinstance(labels[0], int) else labels[0]
        raise ValueError(
            f"All {len(labels):,} labelled rows of {split} have the same label, {only!r}: there is nothing "
            "to learn. Is this the right label column?"
        )


def _token(value: Any) -> str:
    """One label as a string: 3, 3.0, "3" and " 3 " are the same label."""
    if isinstance(value, Fault):
        return value
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() else str(value)
    if value is None or isinstance(value, float):
        return MISSING
    if not isinstance(value, int | str):
        return Fault(f"whose label is a {type(value).__name__}, not a name or a number")
    token = str(value).strip()
    if token.lower() in ("", "nan"):
        return MISSING
    return re.sub(r"^(-?\d+)\.0+$", r"\1", token)


def _tokens(value: Any) -> list[str] | Fault:
    """A list of labels, or a list in a string as CSV files have it."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, Fault):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    if not isinstance(value, list):
        return Fault("whose label is not a list of names")
    tokens = [_token(label) for label in value]
    return next((token for token in tokens if isinstance(token, Fault)), tokens)


def _number(value: Any) -> float | Fault:
    token = _token(value)
    if isinstance(token, Fault):
        return token
    number = _as_number(token)
    return Fault("whose label is not a finite number") if number is None else number


_READERS = {"class": _token, "number": _number, "classes": _tokens}


def _as_number(token: str) -> float | None:
    try:
        number = float(token)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _flat(labels: Iterable[str | list[str]]) -> Iterable[str]:
    for label in labels:
        if isinstance(label, list):
            yield from label
        elif not isinstance(label, Fault):
            yield label


def _names_of(tokens: Sequence[str]) -> tuple[str, ...]:
    numbers = [token for token in tokens if _as_number(token) is not None]
    words = [token for token in tokens if _as_number(token) is None]
    if numbers and words:
        raise ValueError(
            f"Labels are words in {len(words):,} rows, such as {words[0]!r}, and numbers in {len(numbers):,} "
            f"rows, such as {numbers[0]!r}. Repair them, or list all labels in label_names."
        )
    whole = {token for token in numbers if WHOLE.fullmatch(token)}
    return tuple(sorted(whole, key=int)) or tuple(sorted(set(words)))


def _token_encoder(kind: str, names: Sequence[str], tokens: Iterable[str]) -> Callable[[Any], Any]:
    encode = _encoder(names, by_name=not {_token(name) for name in names}.isdisjoint(tokens))
    return encode if kind == "class" else _many(encode, len(names))


def _encoder(names: Sequence[str], by_name: bool) -> Callable[[str], int | Fault]:
    index_of = {_token(name): index for index, name in enumerate(names)}

    def encode(token: str) -> int | Fault:
        if isinstance(token, Fault):
            return token
        if by_name and token in index_of:
            return index_of[token]
        if not by_name and token == MISSING_INDEX:
            return MISSING
        if not by_name and token.isdecimal() and int(token) < len(names):
            return int(token)
        if _as_number(token) is not None and not WHOLE.fullmatch(token):
            return Fault("whose label is not a whole number; task='regression' learns such labels")
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        return Fault(f"whose label is {token!r}, not one of {known}.{did_you_mean(token, names)}")

    return encode


def _many(encode: Callable[[str], int | Fault], count: int) -> Callable[[list[str] | Fault], list | Fault]:
    def encode_many(tokens: list[str] | Fault) -> list[float] | Fault:
        if isinstance(tokens, Fault):
            return tokens
        present = [encode(token) for token in tokens]
        fault = next((index for index in present if isinstance(index, Fault)), None)
        return fault or [float(index in present) for index in range(count)]

    return encode_many
