"""Re-init: give the top blocks and the pooler of a pre-trained model fresh weights before fine-tuning."""

from __future__ import annotations

import torch
from torch import nn

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type


class ReinitTopLayers(Strategy):
    """Draw pooler and top blocks anew, as before pre-training: what they learned there transfers poorly.

    Linear weights N(0, `initializer_range`), biases 0, LayerNorm weight 1 and bias 0; the embeddings and the
    blocks below keep their weights. Happens once, before training; a resumed run keeps what it trained.

    Args:
        layers (`int`, *optional*, defaults to 1): Number of top blocks.
        pooler (`bool`, *optional*): Re-init the pooler; None for where the model has one. True without one is
            an error.
        seed (`int`, *optional*): Of the draw; the run's seed if None. The random streams of data order and
            dropout are untouched by it.

    Raises:
        ValueError: negative or more layers than the model has, a pooler asked for that is not there, layers
            that share their parameters (ALBERT).

    Paper: Zhang et al. 2021, section 5.

    Differs: the model's own `_init_weights` draws, so models that were pre-trained from another distribution
    (ModernBERT: truncated normal) get theirs.
    """

    name = "reinit"
    paper = "Zhang et al. 2021, section 5"

    def __init__(self, layers: int = 1, pooler: bool | None = None, seed: int | None = None):
        check_type("reinit_layers", layers, int)
        if layers < 0:
            raise ValueError(f"reinit_layers is {layers}: give the number of top blocks to re-initialise.")
        if layers == 0 and not pooler:
            raise ValueError("Re-init of 0 blocks and no pooler does nothing: set reinit_layers or reinit_pooler.")
        self.layers = layers
        self.pooler = pooler
        self.seed = seed

    @classmethod
    def from_args(cls, args):
        """On with `reinit_layers` above 0 or with `reinit_pooler`."""
        if not args.reinit_layers and not args.reinit_pooler:
            return None
        return cls(args.reinit_layers, args.reinit_pooler)

    def check(self, args, layer_map: LayerMap) -> None:
        """The model must have that many blocks of its own, and the pooler."""
        if self.layers and layer_map.shared_blocks:
            raise ValueError(
                f"reinit_layers is {self.layers}, but all layers of this model share the parameters of one block "
                "(ALBERT): re-initialising it would throw the whole encoder away."
            )
        if self.layers > layer_map.num_blocks:
            raise ValueError(
                f"reinit_layers is {self.layers}, but the model has {layer_map.num_blocks} blocks: "
                f"give a number from 1 to {layer_map.num_blocks}."
            )
        if self.pooler and layer_map.pooler is None:
            raise ValueError("reinit_pooler is set, but this model has no pooler: leave it out.")
        drawn = {n: p for d in self.depths(layer_map) for n, p in layer_map.parameters_at(d).items()}
        if self.pooler is not False:
            top = layer_map.parameters_at(layer_map.head_depth)
            drawn |= {n: p for n, p in top.items() if layer_map.part_of(n) == "pooler"}
        frozen = [n for n, p in drawn.items() if not p.requires_grad]
        if frozen:
            raise ValueError(
                f"reinit_layers is {self.layers}, reinit_pooler {self.pooler}, but {len(frozen)} parameters of these "
                f"parts do not train (requires_grad is False, first {frozen[0]!r}; PEFT?): they would stay random. "
                "Leave it out."
            )

    def attach(self, args, layer_map: LayerMap) -> None:
        """Settle what was left open: the run's seed, whether there is a pooler."""
        super().attach(args, layer_map)
        self.seed = args.seed if self.seed is None else self.seed
        self.pooler = layer_map.pooler is not None if self.pooler is None else self.pooler

    def depths(self, layer_map: LayerMap) -> list[int]:
        """Depths of the re-initialised blocks, top first."""
        return [layer_map.num_blocks - k for k in range(self.layers)]

    def prepare_model(self, model: nn.Module, layer_map: LayerMap) -> None:
        """Draw the weights, and make sure that they changed."""
        modules = [layer_map.blocks[depth - 1] for depth in self.depths(layer_map)]
        if self.pooler:
            modules.append(layer_map.pooler)
        before = {p: p.detach().clone() for m in modules for p in m.parameters()}
        gpus = {p.device for p in before if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=gpus), torch.no_grad():
            torch.manual_seed(self.seed)
            for module in modules:
                _mark_initialized(module, False)
                module.apply(model._init_weights)
                _mark_initialized(module, True)
        unchanged = [p for p, old in before.items() if p.dim() > 1 and torch.equal(p, old)]
        if unchanged:
            raise RuntimeError(
                f"Re-init left {len(unchanged)} of {len(before)} tensors as they were: {type(model).__name__} "
                "initialises its weights in a way that Re-init does not reach. Please report the model."
            )

    def settings(self):
        """As given, with the seed in use."""
        return {"layers": self.layers, "pooler": self.pooler, "seed": self.seed}

    def summary(self) -> str:
        """For people."""
        blocks = f"top {self.layers} block{'s' * (self.layers != 1)}" if self.layers else ""
        pooler = "pooler" if self.pooler else ""
        return f"re-initialised: {' and '.join(filter(None, [blocks, pooler]))}"


def _mark_initialized(module: nn.Module, done: bool) -> None:
    """Set the marks with which `from_pretrained` shields loaded weights from `_init_weights`."""
    for item in (*module.modules(), *module.parameters(), *module.buffers()):
        item._is_hf_initialized = done
