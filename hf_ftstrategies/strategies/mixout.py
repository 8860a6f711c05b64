"""Mixout: in training, swap random parts of the weights for those that the training began with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.starting_weights import refuse_sharded, starting_weights
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type, did_you_mean

MASKS = ("column", "parameter")


class MixedLinear(nn.Linear):
    """A linear layer whose weight is, in training, a random mixture of its own and its target; else a plain one.

    [`Mixout`] turns plain layers into this class and back. Parameters and state dict are those of `nn.Linear`.

    Attributes:
        mixout_target (`torch.Tensor`): Buffer of the weight's shape, not saved with the model.
        mixout_probability (`float`): Share of the target.
        mixout_mask (`str`): `"column"` or `"parameter"`.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input @ weight.T + bias`, the weight mixed in training."""
        if not self.training:
            return super().forward(input)
        keep = 1 - self.mixout_probability
        shape = self.weight.shape if self.mixout_mask == "parameter" else (1, self.in_features)
        mask = self.weight.new_empty(shape).bernoulli_(keep)
        # ((1 - n) target + n w - p target) / (1 - p), in one pass: target + n / (1 - p) (w - target)
        return F.linear(input, torch.lerp(self.mixout_target, self.weight, mask / keep), self.bias)


class Mixout(Strategy):
    """Replace a random part of each linear layer's weight by its starting value, anew in every forward pass.

    With mask n ~ Bernoulli(1 - p), target u and weight w, a layer trains with
    `((1 - n) u + n w - p u) / (1 - p)`, whose mean is w; in evaluation it is the plain layer. This pulls w
    towards u the more, the further away it is; dropout is the same with u = 0, and is switched off.

    The targets are the weights at the start of the training: the pre-trained ones, or the fresh ones of
    re-initialised blocks and of the head. They are kept in checkpoints, not in the model, which is saved as a
    stock one with its own dropout. Biases, norms and embeddings are not mixed, nor is what is tied to an
    embedding or is no `nn.Linear` (XLNet's attention). Costs a copy of these weights, in memory and in checkpoints.

    Args:
        probability (`float`, *optional*, defaults to 0.5): Share of the target, in (0, 1).
        mask (`str`, *optional*, defaults to `"column"`): `"column"` draws once for each input feature, that is,
            for all weights that leave a neuron; `"parameter"` for each weight alone (the paper's mixconnect,
            slower).
        head (`bool`, *optional*, defaults to `True`): Mix the head too, towards its initial values.
        keep_dropout (`bool`, *optional*, defaults to `False`): Leave the model's `nn.Dropout` layers on.

    Raises:
        ValueError: probability outside (0, 1), unknown mask; later, blocks without `nn.Linear` (GPT-2),
            adapters (PEFT), sharded parameters (FSDP, DeepSpeed), a resume without the targets.

    Paper: Lee et al. 2020, section 3; Zhang et al. 2021, section 6.

    Differs: the gradient of the weight is n / (1 - p), that of the formula; the authors' code returns n. All
    processes draw the same masks, because Trainer seeds them alike, so N processes still train as one.
    """

    name = "mixout"
    paper = "Lee et al. 2020, section 3; Zhang et al. 2021, section 6"

    def __init__(self, probability: float = 0.5, mask: str = "column", head: bool = True, keep_dropout: bool = False):
        check_type("mixout", probability, float)
        if not 0 < probability < 1:
            raise ValueError(f"mixout is {probability}: give the share of the starting weights, above 0 and below 1.")
        if mask not in MASKS:
            raise ValueError(f"mixout_mask is {mask!r}, known are {', '.join(MASKS)}.{did_you_mean(mask, MASKS)}")
        self.probability = probability
        self.mask = mask
        self.head = head
        self.keep_dropout = keep_dropout
        self._targets: dict[str, torch.Tensor] = {}
        self._mixed: list[MixedLinear] = []
        self._dropouts: dict[nn.Dropout, float] = {}

    @classmethod
    def from_args(cls, args):
        """On with `mixout` other than 0."""
        if args.mixout == 0:
            return None
        return cls(args.mixout, args.mixout_mask, args.mixout_head, args.mixout_keep_dropout)

    def check(self, args, layer_map: LayerMap) -> None:
        """There must be whole, trainable linear layers to mix."""
        refuse_sharded(args, "mixout")
        names = [name for depth in range(layer_map.head_depth + 1) for name in layer_map.parameters_at(depth)]
        if any(".base_layer." in name for name in names):
            raise ValueError(
                "mixout mixes weights with their starting values, but PEFT freezes them, so that both are the same: "
                "leave it out."
            )
        if not any(type(module) is nn.Linear for block in layer_map.blocks for module in block.modules()):
            block = type(layer_map.blocks[0]).__name__
            raise ValueError(f"mixout mixes nn.Linear layers, but {block} has none (GPT-2's are Conv1D): leave it out.")

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Make the layers mixed ones, around the parameters that optimizer and DDP already hold."""
        super().on_train_begin(args, state, control, model=model, **kwargs)
        self._restore()  # a training that is tried again with smaller batches never ended
        layers = self._layers(model)
        weights = {name: layer.weight for name, layer in layers.items()}
        self._targets = starting_weights(weights, self._targets, state.global_step, "mixout")
        for name, layer in layers.items():
            layer.__class__ = MixedLinear
            layer.register_buffer("mixout_target", self._targets[name], persistent=False)
            layer.mixout_probability, layer.mixout_mask = self.probability, self.mask
            self._mixed.append(layer)
        if not self.keep_dropout:
            self._dropouts = {m: m.p for m in model.modules() if isinstance(m, nn.Dropout)}
            for dropout in self._dropouts:
                dropout.p = 0.0

    def on_train_end(self, args, state, control, **kwargs):
        """Give the model back with plain layers and its dropout."""
        self._restore()
        self._targets = {}

    def _layers(self, model: nn.Module) -> dict[str, nn.Linear]:
        """The layers to mix, by the name of their weight."""
        others = (m for m in model.modules() if type(m) is not nn.Linear)
        tied = {p for module in others for p in module.parameters(recurse=False)}
        linear = {f"{name}.weight": m for name, m in model.named_modules() if type(m) is nn.Linear}
        return {
            name: layer
            for name, layer in linear.items()
            if layer.weight not in tied and (self.head or self.layer_map.part_of(name) != "head")
        }

    def _restore(self) -> None:
        for layer in self._mixed:
            layer.__class__ = nn.Linear
            del layer.mixout_target, layer.mixout_probability, layer.mixout_mask
        for dropout, probability in self._dropouts.items():
            dropout.p = probability
        self._mixed, self._dropouts = [], {}

    def state_dict(self) -> dict[str, Any]:
        """The targets."""
        return dict(self._targets)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Mix towards the same targets."""
        self._targets = dict(state)

    def settings(self):
        """As given."""
        return {
            "probability": self.probability,
            "mask": self.mask,
            "head": self.head,
            "keep_dropout": self.keep_dropout,
        }

    def summary(self) -> str:
        """For people."""
        what = "weights" if self.mask == "parameter" else "columns"
        head = "" if self.head else ", head not mixed"
        return f"mixout, {self.probability:g} of the {what} at their starting values{head}" + (
            "" if self.keep_dropout else ", no dropout"
        )
