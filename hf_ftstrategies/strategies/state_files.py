"""State of the strategies in a checkpoint: `strategies.json` beside `strategies.safetensors`, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hf_ftstrategies.strategies.base import Strategy

JSON_NAME = "strategies.json"
TENSORS_NAME = "strategies.safetensors"
FORMAT = 1


def save_states(folder: str | Path, strategies: list[Strategy], fingerprint: dict[str, Any]) -> None:
    """Write the state of all strategies and the fingerprint of the run.

    Args:
        folder (`str` or `Path`): The checkpoint.
        strategies (`list[Strategy]`): Names are unique.
        fingerprint (`dict`): Of the plan.
    """
    values: dict[str, dict[str, Any]] = {}
    tensors: dict[str, torch.Tensor] = {}
    for strategy in strategies:
        state = strategy.state_dict()
        values[strategy.name] = {k: v for k, v in state.items() if not isinstance(v, torch.Tensor)}
        tensors |= {
            f"{strategy.name}/{k}": v.detach().cpu().contiguous()
            for k, v in state.items()
            if isinstance(v, torch.Tensor)
        }
    if tensors:
        save_file(tensors, Path(folder, TENSORS_NAME))
    content = {"format": FORMAT, "fingerprint": fingerprint, "tensors": sorted(tensors), "states": values}
    Path(folder, JSON_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_states(folder: str | Path, strategies: list[Strategy]) -> None:
    """Give each strategy the state that `save_states` wrote.

    Raises:
        ValueError: a file is missing, torn, of another format, or without the state of a strategy.
    """
    content = read_json(folder)
    tensors = _read_tensors(folder, content["tensors"]) if content["tensors"] else {}
    for strategy in strategies:
        prefix = f"{strategy.name}/"
        own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            strategy.load_state_dict(content["states"][strategy.name] | own)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{str(Path(folder, JSON_NAME))!r} holds no state that {strategy.name!r} can go on from ({error}): "
                "resume from another checkpoint."
            ) from error


def read_json(folder: str | Path) -> dict[str, Any]:
    """The content of `strategies.json`.

    Raises:
        ValueError: missing, torn, or of another format.
    """
    path = Path(folder, JSON_NAME)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"The strategy state {str(path)!r} cannot be read ({error}): resume from another checkpoint."
        ) from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {found!r}, this version of hf_ftstrategies reads format {FORMAT}: "
            "resume with the version that wrote it."
        )
    for key, kind in (("fingerprint", dict), ("tensors", list), ("states", dict)):
        if not isinstance(content.get(key), kind):
            raise ValueError(f"{str(path)!r} has no {key!r}: resume from another checkpoint.")
    return content


def _read_tensors(folder: str | Path, expected: list[str]) -> dict[str, torch.Tensor]:
    path = Path(folder, TENSORS_NAME)
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises its own class, not exported as public
        raise ValueError(f"{str(path)!r} cannot be read ({error}): resume from another checkpoint.") from error
    if sorted(tensors) != expected:
        raise ValueError(f"{str(path)!r} and {JSON_NAME} do not belong together: resume from another checkpoint.")
    return tensors
