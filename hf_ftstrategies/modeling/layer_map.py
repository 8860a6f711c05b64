"""Which parameter lies how deep: the map of a model that every depth-wise strategy reads.

Depth 0 is everything before the blocks, depths 1..L are the blocks from bottom to top, and depth L + 1 is
everything after them: final norm, pooler, head. The structure is read from the model, not from a table of
architectures: the head is what lies outside `model.base_model`, and the blocks are the one `ModuleList` in it
that is as long as `config.num_hidden_layers`. Only what surrounds the blocks is recognised by name.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel

from hf_ftstrategies.suggest import did_you_mean

# Where DDP and DeepSpeed, FSDP, torch.compile, a PEFT model and a PEFT tuner keep the model they wrap.
_WRAPPED_AS = ("module", "_fsdp_wrapped_module", "_orig_mod", "base_model", "model")

# Name segments that wrappers add and the bare model does not have.
_OUTER = re.compile(r"^(?:module\.|base_model\.model\.)+")
_ANYWHERE = re.compile(
    r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module"
    r"|base_layer|original_module|modules_to_save\.[^.]+)\."
)
_LORA = re.compile(r"\.lora_[^.]+\.[^.]+(?:\.(?:weight|bias))?$")

_POOLERS = {"pooler", "sequence_summary"}
# Registered after the blocks, but feed all of them (DeBERTa, MPNet) or, DeBERTa's convolution, the second.
_FEED_BLOCKS = {"rel_embeddings", "relative_attention_bias", "conv"}
_ALWAYS_FINAL = re.compile(r"final_\w*norm|ln_f|norm_f|project_out")  # OPT registers its before the blocks
_NORM = re.compile(r"norm|ln|layer_?norm", re.IGNORECASE)


class _Place(NamedTuple):
    depth: int
    part: str


class LayerMap:
    """The parts of a Transformers model, ordered by depth. Made by [`LayerMap.from_model`].

    Attributes:
        model (`nn.Module`): What the map was made of, with its wrappers.
        blocks (`list[nn.Module]`): The blocks, bottom to top; `blocks[k - 1]` has depth `k`.
        embeddings (`list[nn.Module]`): The modules at depth 0: embeddings and their projections and norms,
            relative position embeddings.
        pooler (`nn.Module` or `None`): BERT's and ALBERT's `pooler`, DeBERTa's context pooler, XLNet's
            `sequence_summary`. `None` where the head itself pools (RoBERTa, ELECTRA, ModernBERT, ...).
        head (`list[nn.Module]`): The modules with parameters outside the base model, without the pooler;
            empty for a model without a head.
        shared_blocks (`bool`): `True` if several layers share one block, as in ALBERT. There, `blocks` lists
            each block once, so that `num_blocks` is 1, not `config.num_hidden_layers`, and the depths are
            0 (embeddings), 1 (the shared block) and 2 (head).
    """

    def __init__(
        self,
        model: nn.Module,
        places: dict[str, _Place],
        blocks: list[nn.Module],
        embeddings: list[nn.Module],
        pooler: nn.Module | None,
        head: list[nn.Module],
        shared_blocks: bool,
    ):
        self.blocks = blocks
        self.embeddings = embeddings
        self.pooler = pooler
        self.head = head
        self.shared_blocks = shared_blocks
        self.model = model
        self._places = places

    @classmethod
    def from_model(cls, model: nn.Module) -> "LayerMap":
        """Read the map of a model.

        Args:
            model (`nn.Module`): A `PreTrainedModel` with or without a head, bare or wrapped by DDP, FSDP,
                DeepSpeed, PEFT or `torch.compile`, also by several of them.

        Returns:
            `LayerMap`: The map. It keeps a reference to `model`.

        Raises:
            ValueError: If `model` is no Transformers model, is an encoder-decoder, has no stack of blocks or
                several, or has parameters of which the depth is unknown.
        """
        if not isinstance(model, nn.Module):
            raise ValueError(f"A LayerMap is made of a model, not of {model!r}: load it with from_pretrained first.")
        core = _unwrap(model)
        base = core.base_model
        path, stack = _find_blocks(base)
        blocks, top = list(stack), len(stack) + 1

        around = list(_surroundings(base, path))
        outside = [] if core is base else [named for named in core.named_children() if named[1] is not base]
        embeddings = [module for part, module in around if part == "embeddings"]
        final_norms = [module for part, module in around if part == "final_norm"]
        poolers = [module for part, module in around if part == "pooler"]
        poolers += [module for name, module in outside if name in _POOLERS]
        head = [module for name, module in outside if name not in _POOLERS and _has_parameters(module)]

        # Bottom to top, and the first place stays: tied weights belong to the lowest part that uses them.
        below, above = _Place(0, "embeddings"), _Place(top, "head")
        located = [(below, module) for module in embeddings]
        located += [(_Place(depth, "block"), block) for depth, block in enumerate(blocks, start=1)]
        located += [(_Place(top, "final_norm"), module) for module in final_norms]
        located += [(_Place(top, "pooler"), module) for module in poolers]
        located += [(below, base), (above, core)]  # parameters that hang on a container, as XLNet's mask_emb
        place_of: dict[nn.Parameter, _Place] = {}
        for place, module in located:
            for parameter in module.parameters():
                place_of.setdefault(parameter, place)

        places = _places_by_name(model, core, place_of)
        shared = len(blocks) < base.config.num_hidden_layers
        return cls(model, places, blocks, embeddings, poolers[0] if poolers else None, head, shared)

    @property
    def num_blocks(self) -> int:
        """The number L of blocks; 1 for ALBERT, whose layers share one block."""
        return len(self.blocks)

    @property
    def head_depth(self) -> int:
        """The depth L + 1 of final norm, pooler and head."""
        return self.num_blocks + 1

    def depth_of(self, param_name: str) -> int:
        """Return the depth of a parameter.

        Args:
            param_name (`str`): The name as `named_parameters()` or `state_dict()` gives it, of the bare model
                or of the model wrapped by DDP, FSDP, PEFT or `torch.compile`.

        Returns:
            `int`: 0 below the blocks, 1..L in the blocks, L + 1 above them.

        Raises:
            ValueError: If the model has no such parameter; names the nearest one.
        """
        return self._place_of(param_name).depth

    def part_of(self, param_name: str) -> str:
        """Return the part of the model that a parameter belongs to.

        Args:
            param_name (`str`): As for [`LayerMap.depth_of`].

        Returns:
            `str`: `"embeddings"`, `"block"`, `"final_norm"`, `"pooler"` or `"head"`.

        Raises:
            ValueError: If the model has no such parameter; names the nearest one.
        """
        return self._place_of(param_name).part

    def name_of(self, depth: int) -> str:
        """Return the name of a depth for people.

        Args:
            depth (`int`): 0..L + 1.

        Returns:
            `str`: `"embeddings"`, `"block 1"` .. `"block L"` or `"head"` (with final norm and pooler).

        Raises:
            ValueError: If there is no such depth.
        """
        self._check_depth(depth)
        if depth == 0:
            return "embeddings"
        return "head" if depth == self.head_depth else f"block {depth}"

    def parameters_at(self, depth: int) -> dict[str, nn.Parameter]:
        """Return the parameters at a depth. Every parameter of the model is at exactly one.

        Args:
            depth (`int`): 0..L + 1.

        Returns:
            `dict[str, nn.Parameter]`: The parameters by name, names and order as `named_parameters()` of the
            model passed to [`LayerMap.from_model`] gives them. Tied weights appear once, at the lowest depth
            that uses them.

        Raises:
            ValueError: If there is no such depth, or if the model has got parameters that it did not have
                when the map was made.
        """
        self._check_depth(depth)
        # Looked up afresh, because a strategy may replace a parameter after the map is made.
        named = self.model.named_parameters()
        return {name: parameter for name, parameter in named if self.depth_of(name) == depth}

    def describe(self) -> str:
        """Return the map as text: a line per depth with its name and its number of parameters.

        Returns:
            `str`: Several lines, bottom to top; a last one says so if the layers share their blocks.
        """
        lines = []
        for depth in range(self.head_depth + 1):
            count = sum(parameter.numel() for parameter in self.parameters_at(depth).values())
            lines.append(f"{depth:>3}  {self.name_of(depth):<12}{count:>14,} parameters")
        if self.shared_blocks:
            lines.append("The layers share their blocks; a block that several layers use has one depth.")
        return "\n".join(lines)

    def _place_of(self, param_name: str) -> _Place:
        bare_name = _bare(param_name)
        if bare_name not in self._places:
            model = type(self.model).__name__
            raise ValueError(f"{model} has no parameter '{param_name}'.{did_you_mean(bare_name, self._places)}")
        return self._places[bare_name]

    def _check_depth(self, depth: int) -> None:
        if not 0 <= depth <= self.head_depth:
            raise ValueError(
                f"There is no depth {depth}: depths are 0 (embeddings), 1 to {self.num_blocks} (blocks) and "
                f"{self.head_depth} (head)."
            )


def _bare(param_name: str) -> str:
    """Return the name that the parameter, or the one a LoRA matrix adapts, has in the bare model."""
    return _LORA.sub(".weight", _OUTER.sub("", _ANYWHERE.sub("", param_name)))


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _unwrap(model: nn.Module) -> PreTrainedModel:
    """Return the Transformers model inside any number of wrappers."""
    core = model
    while not isinstance(core, PreTrainedModel):
        children = dict(core.named_children())
        wrapped = next((children[name] for name in _WRAPPED_AS if name in children), None)
        if wrapped is None:
            raise ValueError(
                "LayerMap needs a Transformers model (PreTrainedModel), bare or wrapped by DDP, FSDP, PEFT "
                f"or torch.compile, but got {type(model).__name__}."
            )
        core = wrapped
    return core


def _find_blocks(base: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the path and the list of the blocks."""
    lists = {name: module for name, module in base.named_modules() if isinstance(module, nn.ModuleList)}
    outermost = {
        name: modules for name, modules in lists.items() if not any(name.startswith(f"{other}.") for other in lists)
    }
    found = ", ".join(f"'{name}' ({len(modules)})" for name, modules in outermost.items()) or "none"
    if base.config.is_encoder_decoder:
        raise ValueError(
            f"{type(base).__name__} is an encoder-decoder model: it has two stacks of blocks ({found}), but "
            "depth is defined for one. Use a model with one stack, such as BERT, or only the encoder of this "
            "one (T5EncoderModel)."
        )
    layers = getattr(base.config, "num_hidden_layers", None)
    # ALBERT: the config counts layers, the list holds the groups of layers that share a block.
    expected = getattr(base.config, "num_hidden_groups", layers)
    candidates = [(name, modules) for name, modules in outermost.items() if len(modules) == expected]
    if len(candidates) != 1:
        raise ValueError(
            f"{type(base).__name__} should have exactly one ModuleList as long as config.num_hidden_layers "
            f"({expected}), but has {len(candidates)}. Its outermost lists and their lengths: {found}. If "
            "you added or removed blocks, set config.num_hidden_layers to their number."
        )
    return candidates[0]


def _surroundings(base: nn.Module, blocks_path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield part and module of all that lies beside the way from the base model down to its blocks."""
    container = base
    for step in blocks_path.split("."):
        children = dict(container.named_children())
        after_blocks = False
        for name, child in children.items():
            if name == step:
                after_blocks = True
            elif _has_parameters(child):
                yield _part_of_child(name, children, after_blocks, type(base).__name__), child
        container = children[step]


def _part_of_child(name: str, siblings: dict[str, nn.Module], after_blocks: bool, model: str) -> str:
    """Return the part that a module of the base model belongs to."""
    if name in _POOLERS:
        return "pooler"
    if _ALWAYS_FINAL.fullmatch(name):
        return "final_norm"
    # DeBERTa's encoder.LayerNorm comes after the blocks by name and order, but normalises rel_embeddings.
    norms_relative_embeddings = name == "LayerNorm" and "rel_embeddings" in siblings
    if not after_blocks or name in _FEED_BLOCKS or norms_relative_embeddings:
        return "embeddings"
    if _NORM.fullmatch(name):
        return "final_norm"
    raise ValueError(
        f"LayerMap cannot tell the depth of '{name}' in {model}: it is registered after the blocks, but is "
        "neither a final norm nor a pooler. Please report the architecture, or move the module out of the "
        "base model, where it counts as head."
    )


def _places_by_name(model: nn.Module, core: nn.Module, place_of: dict[nn.Parameter, _Place]) -> dict[str, _Place]:
    """Return the places by bare name, also for the second names of tied weights."""
    strays = [name for name, parameter in model.named_parameters() if parameter not in place_of]
    if strays:
        raise ValueError(
            f"LayerMap cannot tell the depth of {len(strays)} parameters of {type(model).__name__} outside "
            f"the {type(core).__name__} it wraps, beginning with '{strays[0]}'. Prompt-learning adapters "
            "have no depth; use LoRA. Make modules of your own part of a PreTrainedModel."
        )
    named = model.named_parameters(remove_duplicate=False)
    return {_bare(name): place_of[parameter] for name, parameter in named}
