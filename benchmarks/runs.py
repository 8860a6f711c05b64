"""Results files that are written run by run, and gone on with where they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path


def complete(path: Path, command: str, wanted: Iterable[tuple[dict, Callable[[], dict]]]) -> list[dict]:
    """Do the runs that a results file lacks, and write it after each.

    Args:
        path (`Path`): The file, JSON with `command` and `runs`.
        command (`str`): What to repeat them with.
        wanted (`Iterable[tuple[dict, Callable]]`): What the facts of a run contain, by which it is found again, and
            what returns these facts.

    Returns:
        `list[dict]`: The facts of all runs in the file.
    """
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    for known, run in wanted:
        if not any(known.items() <= one.items() for one in runs):
            runs.append(run())
            content = json.dumps({"command": command, "runs": runs}, indent=2)
            path.write_text(content + "\n", encoding="utf-8")
    return runs
