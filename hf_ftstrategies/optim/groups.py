"""Parameter groups: one for each depth of the model, crossed with weight decay and no weight decay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from hf_ftstrategies.modeling.layer_map import LayerMap


@dataclass
class ParameterGroup:
    """The trainable parameters of one depth that share a learning rate and a weight decay.

    Args:
        depth (`int`): 0 = embeddings, 1..L = blocks, L + 1 = pooler and head.
        name (`str`): For people: `"block 3"`.
        parameters (`dict[str, nn.Parameter]`): By name.
        learning_rate (`float`): Peak rate.
        weight_decay (`float`): 0.0 for biases and norms.
        decays (`bool`): Whether weight decay is meant for them: False for biases and norms.
    """

    depth: int
    name: str
    parameters: dict[str, nn.Parameter]
    learning_rate: float
    weight_decay: float
    decays: bool

    def for_optimizer(self) -> dict:
        """The dictionary that a torch optimizer takes."""
        return {
            "params": list(self.parameters.values()),
            "lr": self.learning_rate,
            "weight_decay": self.weight_decay,
            "depth": self.depth,
        }


def build_groups(
    layer_map: LayerMap, decay_names: Collection[str], learning_rate: float, weight_decay: float
) -> list[ParameterGroup]:
    """Groups of all trainable parameters, from the head (first, so that its rate is the one Trainer logs) down.

    Args:
        layer_map (`LayerMap`): Depth of every parameter.
        decay_names (`Collection[str]`): Names that decay, as `Trainer.get_decay_parameter_names` gives them.
        learning_rate (`float`): Base rate; strategies change it per group afterwards.
        weight_decay (`float`): Of the decaying groups.

    Raises:
        ValueError: no parameter requires a gradient.
    """
    decay_names = set(decay_names)
    groups = []
    for depth in range(layer_map.head_depth, -1, -1):
        trainable = {n: p for n, p in layer_map.parameters_at(depth).items() if p.requires_grad}
        for decays in (True, False):
            members = {n: p for n, p in trainable.items() if (n in decay_names) == decays}
            if members:
                name, decay = layer_map.name_of(depth), weight_decay if decays else 0.0
                groups.append(ParameterGroup(depth, name, members, learning_rate, decay, decays))
    if not groups:
        raise ValueError(
            "No parameter of the model requires a gradient, so there is nothing to train: set requires_grad=True "
            "on some of them, or use `unfreezing` to freeze parts during training."
        )
    return groups


def check_complete(groups: list[ParameterGroup], model: nn.Module) -> None:
    """Every trainable parameter is in exactly one group, or `ValueError` names those that are not."""
    expected = {id(p): n for n, p in model.named_parameters() if p.requires_grad}
    found = [id(p) for group in groups for p in group.parameters.values()]
    missing = [name for key, name in expected.items() if key not in set(found)]
    doubled = (
        sorted({expected.get(key, "?") for key in found if found.count(key) > 1})
        if len(found) > len(set(found))
        else []
    )
    if missing or doubled:
        raise ValueError(f"Parameter groups are wrong: missing {missing[:5]}, in two groups {doubled[:5]}.")
