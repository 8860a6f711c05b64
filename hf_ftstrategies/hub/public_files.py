"""What of a run's folder is for the public: the model and what was found out, no secrets, no paths of a machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from re import compile as pattern
from typing import Any

from hf_ftstrategies.evaluation.report import write_report
from hf_ftstrategies.hub.attempts import TOKENS_PAGE
from hf_ftstrategies.hub.card import ABSOLUTE_PATH, without_paths

# Not the manifest, the checkpoints, and whatever else somebody put there.
PUBLISHED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.py", "README.md", "report.html", "pictures/*.png")
MANIFEST = "manifest.json"
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
TOKEN = pattern(r"\bhf_(oauth_)?[A-Za-z0-9]{30,}")


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of the finished run in a folder.

    Args:
        folder (`Path`): Output folder of a recipe.

    Raises:
        ValueError: no run of ours, an unfinished one, or one without its model or results.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        settings, status = manifest["settings"], manifest["status"]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{str(folder)!r} holds no run of ours: give the output_dir of a recipe.") from error
    if status != "finished":
        raise ValueError(f"{str(folder)!r} holds a run that has not finished: repeat its command first.")
    for needed in ("*.safetensors", "config.json", "README.md", "results.json", "plan.json"):
        if not any(folder.glob(needed)):
            raise ValueError(
                f"{str(folder)!r} holds something finished, but no {needed}: give the output_dir of a recipe."
            )
    return settings


def public_files(folder: Path, cleaned: Path) -> tuple[dict[str, Path], dict[str, Any]]:
    """Files to publish, by their names in the repository.

    Args:
        folder (`Path`): Of the run; only read.
        cleaned (`Path`): An empty folder for `results.json`, `plan.json` and `report.html` without local paths.

    Returns:
        `tuple[dict[str, Path], dict[str, Any]]`: The files, and the results.

    Raises:
        ValueError: a file holds a token, or a path of this machine.
    """
    facts = {}
    for name in ("results.json", "plan.json"):
        facts[name] = without_paths(json.loads((folder / name).read_text(encoding="utf-8")))
        (cleaned / name).write_text(json.dumps(facts[name], indent=2) + "\n", encoding="utf-8")
    write_report(cleaned / "report.html", facts["results.json"], facts["plan.json"])
    found = [path for kind in PUBLISHED for path in folder.glob(kind) if not path.name.startswith((".", MANIFEST))]
    files = {path.relative_to(folder).as_posix(): path for path in found}
    files |= {path.name: path for path in cleaned.iterdir()}
    for name, path in files.items():
        _check(name, path)
    return dict(sorted(files.items())), facts["results.json"]


def _check(name: str, path: Path) -> None:
    if path.suffix not in (".json", ".txt", ".py", ".md", ".html"):
        return
    text = path.read_text(encoding="utf-8")
    if TOKEN.search(text):
        raise ValueError(f"{name} holds a token of the Hub: take it out, and revoke it at {TOKENS_PAGE}.")
    if name in VOCABULARIES or path.suffix == ".html":
        return
    for match in ABSOLUTE_PATH.finditer(text):
        if os.path.exists(os.path.expanduser(match[0].removeprefix("file://"))):
            raise ValueError(f"{name} names {match[0]}, a place on this machine: take it out before it is published.")
