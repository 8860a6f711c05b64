"""Phases of a training: which parameters train until when, and the published schedules of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hf_ftstrategies.modeling.layer_map import LayerMap

MODES = ("gradual", "ulmfit", "chain_thaw", "last", "head")


@dataclass(frozen=True)
class EarlyStop:
    """End a phase when a metric no longer improves, with the phase's best weights restored.

    Args:
        metric (`str`): Key of the evaluation metrics, with or without `eval_`.
        patience (`int`, *optional*, defaults to 1): Evaluations without improvement that end the phase.
        greater_is_better (`bool`, *optional*): Direction; None for False where the name holds "loss".
    """

    metric: str
    patience: int = 1
    greater_is_better: bool | None = None

    @property
    def key(self) -> str:
        """The metric's name as evaluation reports it."""
        return self.metric if self.metric.startswith("eval_") else f"eval_{self.metric}"

    def better(self, value: float, best: float | None) -> bool:
        """Whether `value` improves on `best`."""
        greater = "loss" not in self.metric if self.greater_is_better is None else self.greater_is_better
        return best is None or (value > best if greater else value < best)


@dataclass(frozen=True)
class Phase:
    """A stretch of training in which the same parameters train.

    Args:
        name (`str`): For people: `"head + block 6"`.
        trains (`frozenset[str]`): Names of the parameters that train; all others are frozen.
        until_step (`int`, *optional*): First step that no longer belongs to it; None = the end of training.
        early_stop (`EarlyStop`, *optional*): Ends it earlier.
    """

    name: str
    trains: frozenset[str]
    until_step: int | None = None
    early_stop: EarlyStop | None = None


def built_in_phases(mode: str, layer_map: LayerMap) -> list[Phase]:
    """The phases of a published schedule, without their ends.

    Args:
        mode (`str`): `"gradual"`: head, then one block more from the top each phase, the embeddings last
            (ULMFiT's text). `"ulmfit"`: head; head and top block; all (ULMFiT's script). `"chain_thaw"`: head
            alone, then each layer alone from the embeddings up, then all (Felbo et al. 2017). `"last"`: head
            and top block throughout. `"head"`: head alone throughout.
        layer_map (`LayerMap`): Of the model.
    """
    top, head = layer_map.num_blocks, layer_map.head_depth
    depths = {
        "gradual": [range(k, head + 1) for k in range(head, -1, -1)],
        "ulmfit": [[head], [top, head], range(head + 1)],
        "chain_thaw": [[head], *([k] for k in range(head)), range(head + 1)],
        "last": [[top, head]],
        "head": [[head]],
    }[mode]
    return [Phase(_name_of(d, layer_map), _at_depths(d, layer_map)) for d in depths]


def _at_depths(depths, layer_map: LayerMap) -> frozenset[str]:
    return frozenset(name for depth in depths for name in layer_map.parameters_at(depth))


def _name_of(depths, layer_map: LayerMap) -> str:
    if len(depths) == layer_map.head_depth + 1:
        return "all"
    names = [layer_map.name_of(depth) for depth in sorted(depths, reverse=True)]
    return " + ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def with_even_ends(
    phases: list[Phase], every: str | int | float, total_steps: int, steps_per_epoch: int
) -> list[Phase]:
    """Give each phase but the last its end, one every `every`.

    Args:
        phases (`list[Phase]`): In order.
        every (`str`, `int` or `float`): `"epoch"`, a number of optimizer steps, or a fraction of the training.
        total_steps (`int`): Optimizer steps of the training.
        steps_per_epoch (`int`): Optimizer steps of one epoch.
    """
    length = {"epoch": steps_per_epoch}.get(every) or (every if every >= 1 else every * total_steps)
    return [
        *(replace(p, until_step=round(length * (i + 1))) for i, p in enumerate(phases[:-1])),
        phases[-1],
    ]


def check_ends(phases: list[Phase], total_steps: int, steps_per_epoch: int, source: str) -> None:
    """Every phase must have at least one step within the training.

    Raises:
        ValueError: a phase that ends before it begins, or begins after the training has ended.
    """
    begin = 0
    for number, phase in enumerate(phases, 1):
        if begin >= total_steps:
            raise ValueError(
                f"{source} has {len(phases)} phases, but phase {number} ({phase.name}) would begin at step {begin} "
                f"and the training ends at step {total_steps} ({total_steps / steps_per_epoch:.3g} epochs of "
                f"{steps_per_epoch} steps): train longer, or set unfreeze_every to at most "
                f"{max(1, (total_steps - 1) // max(1, len(phases) - 1))} steps."
            )
        if phase.until_step is None:
            begin = begin + 1 if phase.early_stop else total_steps  # an early stop may come at any evaluation
            continue
        end = phase.until_step
        if phase is phases[-1] and end != total_steps:
            raise ValueError(
                f"{source}: the last phase ({phase.name}) ends at step {end}, the training at step {total_steps}: "
                "leave its `until` out, or add a phase."
            )
        if end <= begin:
            raise ValueError(
                f"{source}: phase {number} ({phase.name}) ends at step {end}, but begins at step {begin}. Ends count "
                "from the start of the training and must rise: train longer, or make the phases longer."
            )
        begin = end


def parse_every(text: str | int | float) -> str | int | float:
    """Read `unfreeze_every`: `"epoch"`, an integer >= 1 (steps) or a float in (0, 1) (fraction of training)."""
    if text == "epoch":
        return "epoch"
    if isinstance(text, bool):
        text = str(text)
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = 0.0
    if 0 < number < 1:
        return number
    if number >= 1 and number.is_integer():  # inf is none
        return int(number)
    raise ValueError(
        f'unfreeze_every is {text!r}: give "epoch", a whole number of optimizer steps, or a fraction of the '
        "training below 1."
    )
