"""Pre-trained weight decay: let the weights decay towards those that the training began with, not towards 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.flat_parameters import check_storage
from hf_ftstrategies.optim.groups import ParameterGroup
from hf_ftstrategies.optim.starting_weights import refuse_sharded, starting_weights
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type


class PretrainedWeightDecay(Strategy):
    """Before each update of the optimizer: `p -= lr * strength * (p - p0)`, lr being the current rate of p's group.

    p0 is the weight at the start of the training: the pre-trained one, or the fresh one of a re-initialised
    block. Biases and norms do not decay, nor does what is frozen. Where p decays to p0 it does not decay to 0:
    `weight_decay` keeps acting on the head alone. Costs a copy of these weights, in memory and in checkpoints.

    Args:
        strength (`float`, *optional*, defaults to 0.01): Factor of the rate. Zhang et al. tried 0.001 to 1.
        head (`bool`, *optional*, defaults to `False`): Let the head decay to its initial random values too.
        storage (`str`, *optional*, defaults to `"device"`): Where p0 is kept, as of `SelfDistillation`.

    Raises:
        ValueError: strength not positive; later, no weight to decay, sharded parameters (FSDP, DeepSpeed), a
            resume without p0.

    Paper: Wiese et al. 2017; Zhang et al. 2021, section 6 (authors' `PriorWD`).

    Differs: the authors' code leaves the head out by an option that never takes effect; here it is out, and
    the option is to let it in. Their p0 is lost on resume, here it is in the checkpoint. A step that the fp16
    scaler skips does not decay either.
    """

    name = "pretrained_decay"
    paper = "Wiese et al. 2017; Zhang et al. 2021, section 6"

    def __init__(self, strength: float = 0.01, head: bool = False, storage: str = "device"):
        check_type("pretrained_weight_decay", strength, float)
        if not 0 < strength < float("inf"):
            raise ValueError(f"pretrained_weight_decay is {strength}: give a positive factor of the learning rate.")
        check_storage(storage)
        self.strength = strength
        self.head = head
        self.storage = storage
        self._decaying: dict[str, nn.Parameter] = {}
        self._start: dict[str, torch.Tensor] = {}
        self._start_of: dict[nn.Parameter, torch.Tensor] = {}
        self._hook: RemovableHandle | None = None

    @classmethod
    def from_args(cls, args):
        """On with `pretrained_weight_decay` other than 0."""
        if args.pretrained_weight_decay == 0:
            return None
        return cls(args.pretrained_weight_decay, args.pretrained_weight_decay_head, args.copy_storage)

    def check(self, args, layer_map: LayerMap) -> None:
        """The starting weights must be whole."""
        refuse_sharded(args, "pretrained_weight_decay")

    def adjust_groups(self, groups: list[ParameterGroup], layer_map: LayerMap) -> None:
        """Take the ordinary decay off what decays to its start, and part it from the rest of its group."""
        self._decaying = {}
        groups[:] = [part for group in groups for part in self._parts(group, layer_map)]
        if not self._decaying:
            raise ValueError(
                f"pretrained_weight_decay is {self.strength}, but nothing decays: outside the head, all weights that "
                "train are biases or norms. Leave it out."
            )

    def _parts(self, group: ParameterGroup, layer_map: LayerMap) -> list[ParameterGroup]:
        if not group.decays:
            return [group]
        decaying = {n: p for n, p in group.parameters.items() if self.head or layer_map.part_of(n) != "head"}
        others = {n: p for n, p in group.parameters.items() if n not in decaying}
        self._decaying |= decaying
        parts = [replace(group, parameters=others), replace(group, parameters=decaying, weight_decay=0.0)]
        return [part for part in parts if part.parameters]

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        """Remember the weights, and act whenever the optimizer does."""
        super().on_train_begin(args, state, control, **kwargs)
        self._release()  # a training that is tried again with smaller batches never ended
        owner = "pretrained_weight_decay"
        self._start = starting_weights(self._decaying, self._start, state.global_step, owner, self.storage)
        self._start_of = {p: self._start[name] for name, p in self._decaying.items()}
        # of the optimizer inside accelerate's, which an fp16 scaler does not call where it skips a step
        self._hook = optimizer.optimizer.register_step_pre_hook(self._decay)

    @torch.no_grad()
    def _decay(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        skipped = getattr(optimizer, "found_inf", None)  # fused optimizers are called, and look at this themselves
        if skipped is not None and skipped.item():
            return
        for group in optimizer.param_groups:
            moving = [p for p in group["params"] if p.grad is not None and p in self._start_of]
            if moving:
                start = [self._start_of[p].to(p.device, p.dtype) for p in moving]
                torch._foreach_lerp_(moving, start, float(group["lr"]) * self.strength)

    def on_train_end(self, args, state, control, **kwargs):
        """Let go of optimizer and weights."""
        self._release()
        self._start = {}

    def _release(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._start_of = None, {}

    def state_dict(self) -> dict[str, Any]:
        """The starting weights."""
        return dict(self._start)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Decay to the same ones."""
        self._start = dict(state)

    def settings(self):
        """As given."""
        stored = {} if self.storage == "device" else {"storage": self.storage}
        return {"strength": self.strength, "head": self.head, **stored}

    def summary(self) -> str:
        """For people."""
        head = "head included" if self.head else "the head keeps its ordinary weight decay"
        return f"decay towards the starting weights, {self.strength:g} times the learning rate; {head}"
