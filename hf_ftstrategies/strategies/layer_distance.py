"""Diagnostics: how far each layer has moved from its starting weights, and how fast it moves."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.starting_weights import refuse_sharded, starting_weights
from hf_ftstrategies.strategies.base import Strategy


def bias_ratio(step: int, beta1: float = 0.9, beta2: float = 0.999) -> float:
    """How much larger the step of Adam is without bias correction: `(1 - beta1^t) / sqrt(1 - beta2^t)`.

    Args:
        step (`int`): Optimizer steps t done, from 1.
        beta1, beta2 (`float`, *optional*): Of Adam.

    Returns:
        `float`: 3.16 at the first step, 6.57 at the twelfth, then falling to 1.
    """
    return (1 - beta1**step) / (1 - beta2**step) ** 0.5


class LayerDistance(Strategy):
    """Log how the layers move, at every logging step; it changes nothing about the training.

    | key | value |
    |---|---|
    | `layer_distance/block_3` | L2 distance of the layer's weights to those that the training began with |
    | `layer_update/block_3` | L2 norm of their change since the last log, over their L2 norm |
    | `adam_bias_ratio` | `bias_ratio` of the step, where the optimizer has Adam's betas |

    for `embeddings`, every block and `head` (with pooler), of all parameters in the optimizer. A parameter that
    is unfrozen late counts its own steps in Adam; the ratio is that of the parameters which trained from the
    start. Costs two copies of these weights, in memory and in checkpoints, and a pass over them per log.

    Raises:
        ValueError: sharded parameters (FSDP, DeepSpeed), a resume without the starting weights.

    Paper: Zhang et al. 2021, sections 4 (bias ratio) and 5 (distance).
    """

    name = "layer_distance"
    paper = "Zhang et al. 2021, sections 4 and 5"

    def __init__(self):
        self._layers: dict[str, dict[str, nn.Parameter]] = {}
        self._start: dict[str, torch.Tensor] = {}
        self._last: dict[str, torch.Tensor] = {}
        self._betas: tuple[float, float] | None = None

    @classmethod
    def from_args(cls, args):
        """On with `log_layer_distance`."""
        return cls() if args.log_layer_distance else None

    def check(self, args, layer_map: LayerMap) -> None:
        """The starting weights must be whole."""
        refuse_sharded(args, "log_layer_distance")

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        """Remember the weights."""
        super().on_train_begin(args, state, control, **kwargs)
        self._layers = self._trained_layers(optimizer)
        self._betas = optimizer.param_groups[0].get("betas")
        trained = {name: p for layer in self._layers.values() for name, p in layer.items()}
        self._start = starting_weights(trained, self._start, state.global_step, "log_layer_distance")
        self._last = starting_weights(trained, self._last, state.global_step, "log_layer_distance")

    def _trained_layers(self, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, nn.Parameter]]:
        """The parameters in the optimizer, by the layer's key and by name."""
        trained = {p for group in optimizer.param_groups for p in group["params"]}
        layers = {}
        for depth in range(self.layer_map.head_depth + 1):
            named = {n: p for n, p in self.layer_map.parameters_at(depth).items() if p in trained}
            if named:
                layers[self.layer_map.name_of(depth).replace(" ", "_")] = named
        return layers

    @torch.no_grad()
    def training_logs(self, step: int) -> dict[str, float]:
        """Measure; the next log counts its changes from here."""
        distances, updates = {}, {}
        for key, layer in self._layers.items():
            norm = _norm(p.float().norm() for p in layer.values())
            moved = _norm(torch.dist(p.float(), self._last[n].float()) for n, p in layer.items())
            distances[f"layer_distance/{key}"] = _norm(
                torch.dist(p.float(), self._start[n].float()) for n, p in layer.items()
            )
            updates[f"layer_update/{key}"] = moved / norm if norm else 0.0
            torch._foreach_copy_([self._last[n] for n in layer], list(layer.values()))
        ratio = {} if self._betas is None else {"adam_bias_ratio": bias_ratio(step, *self._betas)}
        return distances | updates | ratio

    def on_train_end(self, args, state, control, **kwargs):
        """Let go of the weights."""
        self._layers, self._start, self._last = {}, {}, {}

    def state_dict(self) -> dict[str, Any]:
        """The weights at the start and at the last log."""
        return {f"start.{n}": w for n, w in self._start.items()} | {f"last.{n}": w for n, w in self._last.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Measure from the same ones."""
        self._start, self._last = (
            {key.removeprefix(prefix): w for key, w in state.items() if key.startswith(prefix)}
            for prefix in ("start.", "last.")
        )

    def summary(self) -> str:
        """For people."""
        return "distance to the starting weights logged by layer"


def _norm(norms) -> float:
    """The norm of the whole from the norms of its tensors."""
    return torch.stack(list(norms)).norm().item()
