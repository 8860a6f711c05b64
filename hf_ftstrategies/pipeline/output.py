"""The output folder of a run: claimed before any compute, resumed by the same command, never overwritten."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import safe_open
from transformers import TrainingArguments

from hf_ftstrategies.plan import differences

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"checkpoint-\d+")
_UNREADABLE = (OSError, ValueError, RecursionError)  # what comes of a torn or strange JSON file


class OutputFolder:
    """A folder that belongs to one run, by its manifest.

    Args:
        path (`str` or `Path`): The folder; made if it is not there.
        settings (`dict`): Everything that must be equal when the run is resumed, as JSON values.
        owner (`bool`, *optional*, defaults to `True`): False in all processes but the first: only look.

    Raises:
        ValueError: the folder holds something else, or a run with other settings; or it cannot be written.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any], owner: bool = True):
        self.path = Path(path)
        self._settings = json.loads(json.dumps(settings))
        self.is_owner = owner
        if not owner:
            self._status = self._look()
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"output_dir {str(path)!r} cannot be made: {reason}.") from error
        if not os.access(self.path, os.W_OK):
            raise ValueError(f"output_dir {str(path)!r} cannot be written: no permission.")
        self._status = self._claim()

    def _look(self) -> str:
        """The status as far as it can be seen; the owner says what is wrong, and its end ends all processes."""
        try:
            saved, status = self._read()
        except (*_UNREADABLE, KeyError, TypeError):
            return "running"
        return status if saved == self._settings else "running"

    def _read(self) -> tuple[dict[str, Any], str]:
        """Settings and status of the manifest."""
        content = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(content["settings"], dict) or content["status"] not in ("running", "finished"):
            raise ValueError(f"its status is {content['status']!r}")
        return content["settings"], content["status"]

    def _claim(self) -> str:
        manifest = self.path / MANIFEST
        if not manifest.exists():
            found = sorted(entry.name for entry in self.path.iterdir())
            if found:
                raise ValueError(
                    f"output_dir {str(self.path)!r} is not empty ({', '.join(found[:3])}{', ...' * (len(found) > 3)}) "
                    f"and holds no run of ours: choose another output_dir."
                )
            self._write("running")
            return "running"
        try:
            saved, status = self._read()
        except (*_UNREADABLE, KeyError, TypeError) as error:
            raise ValueError(f"{str(manifest)!r} cannot be read ({error}): choose another output_dir.") from error
        differing = differences(saved, self._settings)
        if differing and status == "running" and not any(self.path.rglob("checkpoint-*")):
            self._write("running")  # it never got as far as a checkpoint: nothing would be lost
        elif differing:
            raise ValueError(
                f"output_dir {str(self.path)!r} holds a run with other settings:\n  "
                + "\n  ".join(line.replace("in the checkpoint", "there") for line in differing[:12])
                + "\nRepeat its settings to resume it, or choose another output_dir."
            )
        return status

    def _write(self, status: str) -> None:
        content = json.dumps({"format": 1, "status": status, "settings": self._settings}, indent=2)
        part = self.path / f"{MANIFEST}.part"
        part.write_text(content + "\n", encoding="utf-8")
        part.replace(self.path / MANIFEST)  # whole or not at all

    @property
    def is_finished(self) -> bool:
        """Whether the run has written everything."""
        return self._status == "finished"

    def finish(self) -> None:
        """Say that the run has written everything."""
        self._write("finished")
        self._status = "finished"

    def part(self, name: str) -> OutputFolder:
        """The folder of one stage of the run, claimed like the whole: finished, running, or new.

        Args:
            name (`str`): Of the stage; a folder in this one.
        """
        return OutputFolder(self.path / name, self._settings, self.is_owner)

    @property
    def checkpoints(self) -> Path:
        """Where the Trainer keeps its checkpoints."""
        return self.path / CHECKPOINTS

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file of the run."""
        (self.path / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def read_json(self, name: str) -> Any:
        """Read one back; raises `ValueError` where it cannot be read."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except _UNREADABLE as error:
            raise ValueError(
                f"{str(self.path / name)!r} cannot be read ({error}), though its run is finished: choose another "
                "output_dir, or empty this one to run it again."
            ) from error


def checkpoint_to_resume(args: TrainingArguments) -> str | None:
    """The newest whole checkpoint of a training; where none of several is whole they are set aside.

    Args:
        args (`TrainingArguments`): Of the training; every process finds the same.
    """
    with args.main_process_first():
        checkpoint = newest_complete_checkpoint(args.output_dir)
        if checkpoint is None and args.process_index == 0:
            set_torn_aside(args.output_dir)
    return checkpoint


def newest_complete_checkpoint(folder: str | Path) -> str | None:
    """The newest checkpoint that was written to its end; a torn one (a kill while saving) is passed over.

    Args:
        folder (`str` or `Path`): With `checkpoint-N` folders, or not there yet.
    """
    numbered = [(int(p.name.split("-")[1]), p) for p in Path(folder).glob("checkpoint-*") if _NAME.fullmatch(p.name)]
    for _, checkpoint in sorted(numbered, reverse=True):
        if not _is_whole(checkpoint):
            logger.warning("%s was not written to its end; an earlier checkpoint is used.", checkpoint)
            continue
        return str(checkpoint)
    return None


def set_torn_aside(folder: str | Path) -> None:
    """Rename all checkpoints to `torn-...`, so that a training of which none is whole can begin anew.

    Args:
        folder (`str` or `Path`): In which `newest_complete_checkpoint` found none.
    """
    for checkpoint in sorted(Path(folder).glob("checkpoint-*")):
        aside = checkpoint.with_name(f"torn-{checkpoint.name}")
        while aside.exists():
            aside = aside.with_name(f"torn-{aside.name}")
        checkpoint.rename(aside)
        logger.warning("The training begins anew; what there is of %s is now %s.", checkpoint.name, aside)


def _is_whole(checkpoint: Path) -> bool:
    """Whether all files of a checkpoint have their end: that of a zip (`*.pt`) is a list of what is in it."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))  # the last file written
        for weights in checkpoint.glob("*.safetensors"):
            with safe_open(weights, "pt"):  # compares the size with the header
                pass
    except Exception:  # safetensors raises its own class, not exported as public
        return False
    return all(map(is_zipfile, [*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]))
