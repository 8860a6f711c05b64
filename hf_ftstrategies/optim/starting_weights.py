"""The weights that a training began with, for what pulls towards them or measures the way from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hf_ftstrategies.optim.flat_parameters import place


def starting_weights(
    parameters: Mapping[str, torch.Tensor],
    loaded: Mapping[str, torch.Tensor],
    step: int,
    owner: str,
    storage: str = "device",
) -> dict[str, torch.Tensor]:
    """Copy the weights before the first step; later, take the copy that the checkpoint holds.

    Args:
        parameters (`Mapping[str, torch.Tensor]`): By name.
        loaded (`Mapping[str, torch.Tensor]`): What the owner's `load_state_dict` got; empty in a new training.
        step (`int`): `state.global_step`: 0 in a new training.
        owner (`str`): Who asks, for messages.
        storage (`str`, *optional*, defaults to `"device"`): As of `FlatParameters`.

    Returns:
        `dict[str, torch.Tensor]`: By name, on the device and in the type that `storage` says.

    Raises:
        ValueError: the training goes on from a checkpoint that does not hold the copy of these parameters.
    """
    if step == 0:
        return {name: torch.empty(p.shape, **place(storage, p)).copy_(p.detach()) for name, p in parameters.items()}
    wrong = [name for name, p in parameters.items() if name not in loaded or loaded[name].shape != p.shape]
    if wrong:
        raise ValueError(
            f"{owner}: the training goes on at step {step}, but the weights it began with are missing for "
            f"{len(wrong)} of {len(parameters)} parameters (first {wrong[0]!r}). Only StrategyTrainer and "
            "StrategyTrainerMixin keep them in their checkpoints: resume from one of theirs."
        )
    return {name: torch.empty(p.shape, **place(storage, p)).copy_(loaded[name]) for name, p in parameters.items()}


def refuse_sharded(args, owner: str) -> None:
    """Raise where each process holds a part of the parameters only, so that a copy by name is none.

    Raises:
        ValueError: the arguments ask for FSDP or DeepSpeed.
    """
    sharded = [name for name in ("fsdp", "deepspeed") if getattr(args, name)]
    if sharded:
        raise ValueError(
            f"{owner} keeps a copy of the weights that the training began with, {sharded[0]} shards them over the "
            "processes: train with DDP (torchrun without it), or leave it out."
        )
