"""YAML that people write for us: plain values only, so that nothing in a file can run, expand or hide."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 100_000  # a schedule of a thousand phases has less


class _PlainLoader(yaml.SafeLoader):
    """`SafeLoader` without tags and aliases, which refuses a key given twice, of which YAML keeps the last."""

    def compose_node(self, parent, index):
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:  # of an alias too; few of them can stand for billions of values
            raise yaml.composer.ComposerError(None, None, "aliases (& and *) are not allowed", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(None, None, f"tags ({event.tag}) are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # else SafeLoader refuses it
                if key in seen:
                    problem = f"the key {key!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path, what: str) -> Any:
    """Read a YAML file of plain values: mappings, lists, text, numbers, true, false, null, dates.

    Args:
        path (`str` or `Path`): Of the file, in UTF-8.
        what (`str`): What it is, for the message: `"Unfreezing schedule"`.

    Returns:
        The values.

    Raises:
        ValueError: not readable, larger than `MAX_BYTES`, not YAML, a tag, an alias, a key given twice.
    """
    where = f"{what} {str(path)!r}"
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
        raise ValueError(f"{where} cannot be read: {place}: {error.problem}.") from error
    except RecursionError as error:
        raise ValueError(f"{where} cannot be read: it is nested too deeply.") from error
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, a date or a number that is none
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ValueError(f"{where} cannot be read: {reason}.") from error
