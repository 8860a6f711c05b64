"""Unfreezing schedules as YAML files: read, checked, resolved against a model, written from one."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.phases import EarlyStop, Phase, built_in_phases
from hf_ftstrategies.optim.yaml_file import read_yaml
from hf_ftstrategies.suggest import check_type, did_you_mean


def read_schedule(path: str | Path) -> list[dict]:
    """Read and check the form of a schedule file: what can be wrong in it without knowing the model.

    Args:
        path (`str` or `Path`): YAML, as `write_schedule` writes it.

    Raises:
        ValueError: not readable, not YAML, or not of that form.
    """
    content = read_yaml(path, "Unfreezing schedule")
    phases = content.get("phases") if isinstance(content, dict) else None
    if not isinstance(phases, list) or not phases:
        raise ValueError(f"Unfreezing schedule {str(path)!r} needs a list `phases:` with at least one phase.")
    _check_keys(content, ("phases",), f"Unfreezing schedule {str(path)!r}")
    for number, phase in enumerate(phases, 1):
        where = f"Unfreezing schedule {str(path)!r}, phase {number}"
        if not isinstance(phase, dict) or "train" not in phase:
            raise ValueError(f"{where}: needs `train:`, a list of depths, parts and patterns, or all.")
        _check_keys(phase, ("name", "train", "until"), where)
        _check_train(phase["train"], where)
        check_type(f"{where}: name", phase.get("name", ""), str)
        until = phase.get("until")
        if until is None and number < len(phases):
            raise ValueError(f"{where}: needs `until:`; only the last phase may run to the end of the training.")
        if until is not None:
            _check_until(until, where)
    return phases


def _check_keys(mapping: dict, known: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in known:
            raise ValueError(
                f"{where}: unknown key {key!r}, known are {', '.join(known)}.{did_you_mean(str(key), known)}"
            )


def _check_train(train, where: str) -> None:
    entries = train if isinstance(train, list) else [train]
    if not entries or any(isinstance(e, bool) or not isinstance(e, (int, str)) for e in entries):
        raise ValueError(f"{where}: `train` is {train!r}: give depths, part names and patterns, or all.")


def _check_until(until, where: str) -> None:
    if not isinstance(until, dict) or not until:
        raise ValueError(f"{where}: `until` is {until!r}: give {{epoch: N}}, {{step: N}} or {{early_stop: ...}}.")
    _check_keys(until, ("epoch", "step", "early_stop"), where)
    for unit in ("epoch", "step"):
        value = until.get(unit, 1)
        check_type(f"{where}: until {unit}", value, *((int,) if unit == "step" else (int, float)))
        if not 0 < value <= 1e9:  # nan and infinity too
            raise ValueError(f"{where}: `until: {{{unit}: {value!r}}}` must be a number above 0, at most 1e9.")
    if "epoch" in until and "step" in until:
        raise ValueError(f"{where}: `until` has both epoch and step: give one.")
    if "early_stop" in until:
        stop = until["early_stop"]
        if not isinstance(stop, dict) or not isinstance(stop.get("metric"), str):
            raise ValueError(f"{where}: `early_stop` needs `metric:`, and may have patience and greater_is_better.")
        _check_keys(stop, ("metric", "patience", "greater_is_better"), where)
        check_type(f"{where}: patience", stop.get("patience", 1), int)
        check_type(f"{where}: greater_is_better", stop.get("greater_is_better"), bool, type(None))
        if stop.get("patience", 1) < 1:
            raise ValueError(f"{where}: patience is {stop['patience']!r}: give a whole number of evaluations >= 1.")


def resolve_schedule(content: list[dict], layer_map: LayerMap, steps_per_epoch: int | None, source: str) -> list[Phase]:
    """Turn the content of a schedule file into phases of a model.

    Args:
        content (`list[dict]`): From `read_schedule`.
        layer_map (`LayerMap`): Of the model.
        steps_per_epoch (`int`, *optional*): For `until: {epoch: N}`; None leaves the ends open.
        source (`str`): The file's name, for errors.

    Raises:
        ValueError: an entry that matches no parameter, or two entries that match the same one.
    """
    phases = []
    for number, entry in enumerate(content, 1):
        where = f"{source}, phase {number}"
        trains = _matched(entry["train"], layer_map, where)
        until = entry.get("until") or {}
        step = until.get("step")
        if "epoch" in until and steps_per_epoch is not None:
            step = round(until["epoch"] * steps_per_epoch)
        stop = EarlyStop(**until["early_stop"]) if "early_stop" in until else None
        name = entry.get("name") or _describe_entries(entry["train"])
        phases.append(Phase(name, trains, step, stop))
    return phases


def _describe_entries(entries) -> str:
    entries = entries if isinstance(entries, list) else [entries]
    return " + ".join(f"depth {e}" if isinstance(e, int) else str(e) for e in entries)


def _matched(entries, layer_map: LayerMap, where: str) -> frozenset[str]:
    """All parameters that the entries of `train:` name, each by one entry."""
    names = [name for depth in range(layer_map.head_depth + 1) for name in layer_map.parameters_at(depth)]
    if entries == "all":
        return frozenset(names)
    owner: dict[str, object] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        found = _match_one(entry, names, layer_map)
        if not found:
            parts = [layer_map.name_of(depth) for depth in range(layer_map.head_depth + 1)]
            raise ValueError(
                f"{where}: {entry!r} matches no parameter. Depths are 0 to {layer_map.head_depth}, parts are "
                f"{parts[0]}, {parts[1]} to {parts[-2]}, {parts[-1]}; patterns are matched against parameter names "
                f"such as {names[-1]!r}.{did_you_mean(str(entry), parts + names)}"
            )
        for name in found:
            if name in owner:
                raise ValueError(f"{where}: {owner[name]!r} and {entry!r} overlap, both match {name!r}.")
            owner[name] = entry
    return frozenset(owner)


def _match_one(entry, names: list[str], layer_map: LayerMap) -> list[str]:
    if isinstance(entry, int):
        return list(layer_map.parameters_at(entry)) if 0 <= entry <= layer_map.head_depth else []
    by_part = {layer_map.name_of(depth): depth for depth in range(layer_map.head_depth + 1)}
    if entry in by_part:
        return list(layer_map.parameters_at(by_part[entry]))
    return [name for name in names if fnmatch.fnmatchcase(name, str(entry))]


def write_schedule(mode: str, layer_map: LayerMap, path: str | Path) -> None:
    """Write a built-in schedule as a file to edit, one epoch a phase.

    Args:
        mode (`str`): One of `MODES`.
        layer_map (`LayerMap`): Of the model.
        path (`str` or `Path`): New file; an existing one is not overwritten.

    Raises:
        ValueError: the file exists.
    """
    if Path(path).exists():
        raise ValueError(f"{str(path)!r} exists: choose another name, or remove it.")
    lines = [
        f"# Unfreezing schedule {mode!r}: {layer_map.num_blocks} blocks.",
        f"# train: depths (0 = embeddings, 1 to {layer_map.num_blocks} = blocks, {layer_map.head_depth} = pooler "
        "and head), part names,",
        "#   patterns of parameter names (shell style), or all.",
        "# until: {epoch: N} or {step: N}, counted from the start of the training, and/or",
        "#   {early_stop: {metric: accuracy, patience: 2}}, which ends the phase with its best weights.",
        "phases:",
    ]
    phases = built_in_phases(mode, layer_map)
    for number, phase in enumerate(phases, 1):
        depths = [d for d in range(layer_map.head_depth, -1, -1) if set(layer_map.parameters_at(d)) <= phase.trains]
        train = "all" if phase.name == "all" else "[" + ", ".join(layer_map.name_of(d) for d in depths) + "]"
        lines.append(f"  - train: {train}")
        if number < len(phases):
            lines.append(f"    until: {{epoch: {number}}}")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
