"""Copies of a model's parameters, laid end to end: one operation moves them all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.suggest import check_type, did_you_mean

STORAGES = ("device", "host", "bfloat16")


class FlatParameters:
    """Copies of the same parameters. Each copy is a row of a flat tensor, one tensor for each device and type.

    Parameters join when they begin to train (`include`); those that never do are not copied.

    Args:
        rows (`int`): Number of copies.
        storage (`str`, *optional*, defaults to `"device"`): `"device"`: like the parameters; `"host"`: in the main
            memory, pinned; `"bfloat16"`: on their device in half the bytes, rounded to 8 bits.

    Attributes:
        pieces (`list[torch.Tensor]`): The flat tensors, each of shape (rows, elements).
        parameters (`dict[str, nn.Parameter]`): What the copies are of, in the order of a row.
    """

    def __init__(self, rows: int, storage: str = "device"):
        self._storage = storage
        self.pieces: list[torch.Tensor] = []
        self.parameters: dict[str, nn.Parameter] = {}
        self._names: list[list[str]] = []
        self._rows: list[dict[str, torch.Tensor]] = [{} for _ in range(rows)]

    def include(self, named: Mapping[str, nn.Parameter]) -> None:
        """Make room for parameters that are not there yet; all their copies begin at the present values."""
        by_kind: dict[tuple, dict[str, nn.Parameter]] = {}
        for name, parameter in named.items():
            if name not in self.parameters:
                by_kind.setdefault((parameter.device, parameter.dtype), {})[name] = parameter
        for members in by_kind.values():
            sizes = [parameter.numel() for parameter in members.values()]
            piece = torch.empty(len(self._rows), sum(sizes), **place(self._storage, next(iter(members.values()))))
            for row, flat in zip(self._rows, piece):
                views = {n: part.view(p.shape) for (n, p), part in zip(members.items(), flat.split(sizes))}
                torch._foreach_copy_(list(views.values()), [p.detach() for p in members.values()])
                row |= views
            self.pieces.append(piece)
            self._names.append(list(members))
            self.parameters |= members

    def row(self, row: int) -> dict[str, torch.Tensor]:
        """One copy by parameter name, as views."""
        return self._rows[row]

    def restored(self, row: int) -> dict[str, torch.Tensor]:
        """One copy by parameter name, where and as the parameters are: views, unless `storage` says otherwise."""
        return {n: view.to(self.parameters[n].device, self.parameters[n].dtype) for n, view in self._rows[row].items()}

    def write(self, row: int) -> None:
        """Overwrite one copy with the present values."""
        torch._foreach_copy_(list(self._rows[row].values()), self.present())

    def present(self) -> list[torch.Tensor]:
        """The parameters themselves, in the order of a row's values."""
        return [parameter.detach() for parameter in self.parameters.values()]

    def state_dict(self, prefix: str) -> dict[str, torch.Tensor]:
        """Every copy of every parameter, as `PREFIX.PIECE.ROW.NAME`."""
        return {
            f"{prefix}.{piece}.{row}.{name}": views[name]
            for piece, names in enumerate(self._names)
            for row, views in enumerate(self._rows)
            for name in names
        }

    def load_state_dict(self, prefix: str, state: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
        """Take back what `state_dict` gave, in the same pieces: the last bit of a sum depends on the place in it.

        Args:
            prefix (`str`), state (`Mapping[str, Any]`): As of `state_dict`; other keys are left alone.
            named (`Mapping[str, nn.Parameter]`): All parameters of the model.
        """
        saved = {tuple(key.split(".", 3)[1:]): value for key, value in state.items() if key.startswith(f"{prefix}.")}
        for piece in sorted({int(piece) for piece, _, _ in saved}):
            self.include({n: p for n, p in named.items() if (str(piece), "0", n) in saved})
        for (_, row, name), value in saved.items():
            self._rows[int(row)][name].copy_(value)


def place(storage: str, parameter: torch.Tensor) -> dict[str, Any]:
    """Arguments of `torch.empty` for copies of a parameter.

    Args:
        storage (`str`): One of `STORAGES`.
        parameter (`torch.Tensor`): What is copied.
    """
    if storage == "host":
        return {"device": "cpu", "dtype": parameter.dtype, "pin_memory": parameter.is_cuda}
    return {"device": parameter.device, "dtype": torch.bfloat16 if storage == "bfloat16" else parameter.dtype}


def check_storage(storage: str) -> None:
    """Raise `ValueError` for an unknown storage."""
    check_type("copy_storage", storage, str)
    if storage not in STORAGES:
        known = f"known are {', '.join(STORAGES)}.{did_you_mean(storage, STORAGES)}"
        raise ValueError(f"copy_storage is {storage!r}, {known}")


@contextmanager
def exchanged(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Let a model have other weights for a while; nothing is copied, and its own come back in any case.

    Args:
        model (`nn.Module`): Unwrapped.
        weights (`Mapping[str, torch.Tensor]`): By parameter name; the others stay.
    """
    named = dict(model.named_parameters())
    own = {name: named[name].data for name in weights}
    try:
        for name, weight in weights.items():
            named[name].data = weight
        yield
    finally:
        for name, weight in own.items():
            named[name].data = weight


def check_copyable(args: TrainingArguments, layer_map: LayerMap, option: str) -> None:
    """The parameters that train must be whole on every process, and precise enough to be averaged.

    Args:
        args (`TrainingArguments`): Of the training.
        layer_map (`LayerMap`): Of the model.
        option (`str`): What asks for copies, for the message.

    Raises:
        ValueError: FSDP, DeepSpeed, or parameters in half precision.
    """
    by_launcher = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1")
    for name, on in (("FSDP", args.fsdp or by_launcher), ("DeepSpeed", args.deepspeed_plugin is not None)):
        if on:
            raise ValueError(
                f"{option} copies whole parameters, which {name} divides among the processes; the two have not been "
                "tried together. Train with DDP (accelerate launch --multi_gpu, torchrun)."
            )
    named = layer_map.model.named_parameters()
    half = [n for n, p in named if p.requires_grad and p.dtype in (torch.float16, torch.bfloat16)]
    if half:
        raise ValueError(
            f"{option} averages students that differ by less than half precision can tell, but {len(half)} parameters "
            f"are stored in it (first {half[0]!r}): load the model with dtype=torch.float32 and train with bf16=True "
            "or fp16=True."
        )
