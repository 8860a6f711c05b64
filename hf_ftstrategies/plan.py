"""The plan of a training: what will happen to which part of the model, before anything happens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.groups import ParameterGroup
from hf_ftstrategies.optim.phases import Phase
from hf_ftstrategies.strategies import Strategy

_SCHEDULE_POINTS = 200
_BAR_WIDTH = 24


@dataclass(frozen=True)
class Plan:
    """What a training will do, as JSON values.

    Args:
        model (`dict`): class, name, blocks, parameters.
        training (`dict`): steps, epochs, batch sizes, optimizer, schedule, seed.
        strategies (`list[dict]`): `Strategy.describe()` of each.
        depths (`list[dict]`): One row for each depth, from the head down: parameters, peak learning rate,
            weight decay, whether it trains in each phase, whether it is re-initialised.
        phases (`list[dict]`): Name, first step, last step (exclusive), what ends it.
        schedule (`list`): `[step, factor of the peak rate]`, at most 201 points.
        groups (`list[dict]`): The optimizer's parameter groups.
    """

    model: dict[str, Any]
    training: dict[str, Any]
    strategies: list[dict[str, Any]]
    depths: list[dict[str, Any]]
    phases: list[dict[str, Any]]
    schedule: list[list[float]]
    groups: list[dict[str, Any]]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must be equal in a run and in the checkpoint it resumes from."""
        return {
            "strategies": {s["name"]: s["settings"] for s in self.strategies},
            "groups": self.groups,
            "optimizer": self.training["optimizer"],
            "schedule": self.training["schedule"],
            "total_steps": self.training["total_steps"],
        }

    def to_dict(self) -> dict[str, Any]:
        """The plan as `plan.json` holds it."""
        return {"format": 1, **asdict(self), "fingerprint": self.fingerprint}

    def save(self, path: str | Path) -> None:
        """Write `plan.json`."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def table(self) -> Table:
        """The plan for a terminal."""
        training, model = self.training, self.model
        caption = [
            f"{model['class']}, {model['parameters'] / 1e6:.1f} M parameters; {training['total_steps']} steps of "
            f"{training['batch']['global']} examples, {training['epochs']:g} epochs",
            f"{training['optimizer']}; {training['schedule']}",
            *(s["summary"] for s in self.strategies),
        ]
        if len(self.phases) > 1:
            caption.append("phases: " + "; ".join(f"{p['name']} (to {p['until']})" for p in self.phases))
        table = Table(title="Plan", caption="\n".join(caption), caption_justify="left", title_justify="left")
        for header in ("part", "parameters", "peak rate", "decay"):
            table.add_column(header, justify="left" if header == "part" else "right", no_wrap=True)
        table.add_column(f"trains █, of {training['total_steps']} steps", no_wrap=True)
        for row in self.depths:
            name = row["name"] + (" (re-init)" if row["reinitialised"] else "")
            rate = f"{row['learning_rate']:.3g}" if any(row["trained_in"]) else "-"
            decay = f"{row['weight_decay']:g}"
            table.add_row(name, f"{row['parameters']:,}", rate, decay, self._bar(row["trained_in"]))
        return table

    def _bar(self, trained_in: list[bool]) -> str:
        """When a depth trains, as a bar over the training; phases of unknown length share what is left evenly."""
        total, end = self.training["total_steps"], 0.0
        cells: list[str] = []
        for number, (phase, trains) in enumerate(zip(self.phases, trained_in)):
            left = len(self.phases) - number
            end = phase["last_step"] if phase["last_step"] is not None else end + (total - end) / left
            cells += ("█" if trains else "·") * (round(_BAR_WIDTH * end / total) - len(cells))
        return "".join(cells)


def make_plan(
    *,
    model: dict[str, Any],
    training: dict[str, Any],
    layer_map: LayerMap,
    groups: list[ParameterGroup],
    strategies: list[Strategy],
    phases: list[Phase],
    factor_at,
    reinitialised: set[int],
) -> Plan:
    """Put the plan together.

    Args:
        model (`dict`), training (`dict`): As `Plan` has them.
        layer_map (`LayerMap`): Of the model.
        groups (`list[ParameterGroup]`): After all strategies adjusted them.
        strategies (`list[Strategy]`): In order.
        phases (`list[Phase]`): Empty if everything trains throughout.
        factor_at (`Callable[[int], float]`, *optional*): Factor of the peak rate at a step; None if unknown
            beforehand (schedules that look at metrics).
        reinitialised (`set[int]`): Depths.
    """
    total_steps = training["total_steps"]
    return Plan(
        model=model,
        training=training,
        strategies=[s.describe() for s in strategies],
        depths=_depth_rows(layer_map, groups, phases, reinitialised),
        phases=_phase_rows(phases, total_steps),
        schedule=[] if factor_at is None else [[s, factor_at(s)] for s in _sample_steps(total_steps)],
        groups=[_group_row(group) for group in groups],
    )


def _depth_rows(layer_map, groups, phases, reinitialised) -> list[dict[str, Any]]:
    rows = []
    for depth in range(layer_map.head_depth, -1, -1):
        parameters = layer_map.parameters_at(depth)
        here = [group for group in groups if group.depth == depth]
        trainable = {name for group in here for name in group.parameters}
        rows.append(
            {
                "depth": depth,
                "name": layer_map.name_of(depth),
                "parameters": sum(p.numel() for p in parameters.values()),
                "trainable": sum(parameters[name].numel() for name in trainable),
                "learning_rate": max((group.learning_rate for group in here), default=0.0),
                "weight_decay": max((group.weight_decay for group in here), default=0.0),
                "trained_in": [bool(trainable & p.trains) for p in phases] or [bool(trainable)],
                "reinitialised": depth in reinitialised,
            }
        )
    return rows


def _phase_rows(phases: list[Phase], total_steps: int) -> list[dict[str, Any]]:
    if not phases:
        return [{"name": "all", "first_step": 0, "last_step": total_steps, "until": "end of training"}]
    rows, first = [], 0
    for phase in phases:
        last = phase.until_step if phase is not phases[-1] or phase.until_step else total_steps
        until = "end of training" if phase is phases[-1] else f"step {last}"
        if phase.early_stop is not None:
            stop = phase.early_stop
            until = f"{stop.patience} evaluations without better {stop.metric}, at the latest {until}"
            until = until.replace(", at the latest step None", "")
        rows.append({"name": phase.name, "first_step": first, "last_step": last, "until": until})
        first = last
    return rows


def _group_row(group: ParameterGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "depth": group.depth,
        "tensors": len(group.parameters),
        "parameters": sum(p.numel() for p in group.parameters.values()),
        "learning_rate": group.learning_rate,
        "weight_decay": group.weight_decay,
    }


def _sample_steps(total_steps: int) -> list[int]:
    points = min(total_steps, _SCHEDULE_POINTS)
    return sorted({round(k * total_steps / points) for k in range(points + 1)})


def differences(saved: Any, current: Any, where: str = "") -> list[str]:
    """What differs between two fingerprints, one line each.

    Args:
        saved: Fingerprint of the checkpoint.
        current: Fingerprint of the run.
        where (`str`, *optional*): Path of keys, for the recursion.
    """
    if isinstance(saved, dict) and isinstance(current, dict):
        keys = [*saved, *(k for k in current if k not in saved)]
        return [d for k in keys for d in differences(saved.get(k), current.get(k), f"{where}.{k}" if where else str(k))]
    if isinstance(saved, list) and isinstance(current, list) and len(saved) == len(current):
        return [d for i, (a, b) in enumerate(zip(saved, current)) for d in differences(a, b, f"{where}[{i}]")]
    if saved == current:
        return []
    return [f"{where}: {_short(saved)} in the checkpoint, {_short(current)} now"]


def _short(value: Any) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
