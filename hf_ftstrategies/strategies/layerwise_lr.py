"""Layer-wise learning rates: the lower the layer, the smaller its rate."""

from __future__ import annotations

import math

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.groups import ParameterGroup
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type, did_you_mean

STYLES = ("sun", "sun_code", "zhang")


def decay_exponent(depth: int, num_blocks: int, style: str) -> int:
    """How often the decay factor is applied to the rate at `depth` (0 = embeddings, `num_blocks + 1` = head)."""
    if depth == num_blocks + 1:
        return 0
    if style == "zhang":
        return num_blocks + 1 - depth
    if style == "sun_code" and depth == 0:
        return 0
    return num_blocks - depth


class LayerwiseLearningRate(Strategy):
    """Discriminative fine-tuning: each layer below has `decay` times the rate of the layer above.

    With L blocks and base rate lr, by `style`:

    | style | head | block L | block k | embeddings |
    |---|---|---|---|---|
    | `sun` | lr | lr | lr · decay^(L-k) | lr · decay^L |
    | `sun_code` | lr | lr | lr · decay^(L-k) | lr |
    | `zhang` | lr, no weight decay | lr · decay | lr · decay^(L-k+1) | lr · decay^(L+1) |

    ULMFiT divides by 2.6 from layer to layer: `decay=1 / 2.6`.

    Args:
        decay (`float`, *optional*, defaults to 0.95): Factor from one layer to the next below, in (0, 1].
        style (`str`, *optional*, defaults to `"sun"`): One of the table.
        head_learning_rate (`float`, *optional*): Rate of pooler and head, instead of the base rate.

    Raises:
        ValueError: decay outside (0, 1], unknown style, rate not positive; later, a model whose layers share
            their parameters (ALBERT).

    Paper: Howard & Ruder 2018, section 3.2; Sun et al. 2019, section 5.4.3, equation 3; Zhang et al. 2021,
    section 6 (LLRD).

    Differs: Sun et al. do not say what becomes of the embeddings and their code gives them the base rate
    (`sun_code`); here they continue the series below block 1. The head of `zhang` has no weight decay, as in
    the authors' code.
    """

    name = "layerwise_lr"
    paper = "Howard & Ruder 2018, section 3.2; Sun et al. 2019, section 5.4.3; Zhang et al. 2021, section 6"

    def __init__(self, decay: float = 0.95, style: str = "sun", head_learning_rate: float | None = None):
        check_type("layer_decay", decay, float)
        check_type("layer_decay_style", style, str)
        if not 0 < decay <= 1:
            raise ValueError(
                f"layer_decay is {decay}: give a factor in (0, 1], 1.0 for the same rate everywhere "
                "(ULMFiT's divisor 2.6 is layer_decay 0.3846)."
            )
        if style not in STYLES:
            raise ValueError(
                f"layer_decay_style is {style!r}, known are {', '.join(STYLES)}.{did_you_mean(style, STYLES)}"
            )
        if head_learning_rate is not None and not 0 < head_learning_rate < math.inf:  # nan too
            raise ValueError(f"head_learning_rate is {head_learning_rate}: give a positive rate.")
        self.decay = decay
        self.style = style
        self.head_learning_rate = head_learning_rate

    @classmethod
    def from_args(cls, args):
        """On with `layer_decay` other than 1.0 or with a `head_learning_rate`."""
        strategy = cls(args.layer_decay, args.layer_decay_style, args.head_learning_rate)
        return None if args.layer_decay == 1.0 and args.head_learning_rate is None else strategy

    def check(self, args, layer_map: LayerMap) -> None:
        """Layers that share their parameters cannot have rates of their own."""
        if layer_map.shared_blocks and self.decay != 1.0:
            raise ValueError(
                f"layer_decay is {self.decay}, but all layers of this model share the parameters of one block "
                "(ALBERT), so there are no layers to tell apart: leave layer_decay at 1.0."
            )

    def adjust_groups(self, groups: list[ParameterGroup], layer_map: LayerMap) -> None:
        """Scale the rate of each group by its depth."""
        for group in groups:
            at_head = group.depth == layer_map.head_depth
            group.learning_rate *= self.decay ** decay_exponent(group.depth, layer_map.num_blocks, self.style)
            if at_head and self.head_learning_rate is not None:
                group.learning_rate = self.head_learning_rate
            if at_head and self.style == "zhang" and self.decay != 1.0:
                group.weight_decay = 0.0

    def settings(self):
        """As given."""
        return {"decay": self.decay, "style": self.style, "head_learning_rate": self.head_learning_rate}

    def summary(self) -> str:
        """For people."""
        head = f", head at {self.head_learning_rate:g}" if self.head_learning_rate is not None else ""
        return f"layer-wise learning rate, factor {self.decay:g} per layer ({self.style}){head}"
