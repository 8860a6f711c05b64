"""Pictures of a plan and of a run. Every function returns a matplotlib `Figure`; no global state is touched.

    save(plot_learning_rates(plan), "learning_rates.png")

`plan` and `results["history"]` are the contents of `plan.json` and `results.json`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

INK, MUTED, FAINT, GRID = "#1b1f24", "#59636e", "#a9b1ba", "#e1e6eb"
# Okabe and Ito's palette: distinct for every kind of color vision.
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
# One hue from light to dark: reads the same in gray, and dark always means fast.
RATES = LinearSegmentedColormap.from_list("rates", ["#dcecf7", "#7fb8dc", "#0072b2", "#00304f"])
SHARES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ccbe8", "#0072b2", "#00304f"])
FROZEN = {"facecolor": "#f6f7f8", "edgecolor": "#c4cad1", "hatch": "////", "linewidth": 0}
WIDTH = 8.0  # inches; at 150 dots per inch a picture is 1,200 pixels wide
PLAN_COLUMNS = (
    (0.0, "left", "depth"),
    (3.6, "right", "parameters"),
    (8.8, "right", "peak rate"),
    (10.0, "right", "weight decay"),
)
CHARACTER_WIDTH = 0.0095  # of a phase name, as a share of the width of the axes
MAX_NAMED_PHASES = 8
MAX_NUMBERED_CLASSES = 20


def plot_learning_rates(plan: dict[str, Any]) -> Figure:
    """Draw which depth learns when and how fast.

    Above, the rate of every depth over the steps, from the head (dark) to the embeddings (light); below, one
    row per depth with the rate as color, hatched while it is frozen.

    Args:
        plan (`dict`): the plan of a run.

    Returns:
        The figure. The boundary of a phase that ends by early stopping is not known before training; such
        phases are drawn equally long, with dashed boundaries.
    """
    depths, total = plan["depths"], plan["training"]["total_steps"]
    if not depths or not total:
        return empty_figure("nothing to train")
    edges = _phase_edges(plan["phases"], total)
    steps, rates = _rates(plan, edges)
    exponent = math.floor(math.log10(max(np.nanmax(rates, initial=0), 1e-12)))
    rates, unit = rates / 10.0**exponent, rf"learning rate ($10^{{{exponent}}}$)"
    figure = Figure(figsize=(WIDTH, 2.9 + 0.26 * len(depths)), layout="constrained")
    lines, rows = figure.subplots(2, 1, sharex=True, height_ratios=[2, max(2.2, 0.3 * len(depths))])

    shades = RATES(np.linspace(1, 0.3, len(depths)))
    for color, row, rate in zip(shades, depths, rates, strict=True):
        lines.plot(steps, rate, color=color, linewidth=1.6, label=row["name"])
    handles = lines.lines[:: max(1, len(depths) - 1)][:2]
    lines.legend(handles=handles, fontsize=9, framealpha=0.9, edgecolor="none")
    lines.set(xlim=(0, total), ylabel=unit)
    lines.set_ylim(bottom=0)
    style_axis(lines)

    _draw_rate_rows(rows, depths, rates, total)
    figure.colorbar(rows.images[0], ax=rows, label=unit, pad=0.02, fraction=0.06).outline.set_visible(False)
    mark_phases((lines, rows), plan["phases"], edges)
    return figure


def plot_loss(
    history: Sequence[dict[str, Any]], phases: Sequence[dict[str, Any]] = (), selected_step: int | None = None
) -> Figure:
    """Draw training and validation loss over the steps, and below them the validation metrics.

    Args:
        history (`Sequence[dict]`): the Trainer's `log_history`.
        phases (`Sequence[dict]`, defaults to `()`): the plan's phases, to mark their boundaries.
        selected_step (`int`, *optional*): step whose weights were kept, marked with a ring.

    Returns:
        The figure; without losses in the history it says so.
    """
    train, validation = series_of(history, "loss"), series_of(history, "eval_loss")
    if not len(train) and not len(validation):
        return empty_figure("no losses were logged")
    metrics = _validation_metrics(history)
    figure = Figure(figsize=(WIDTH, 5.4 if metrics else 3.4), layout="constrained")
    axes = figure.subplots(1 + bool(metrics), 1, sharex=True, squeeze=False)[:, 0]
    axes[0].plot(*train.T, color=BLUE, linewidth=1.6, label="training")
    if len(validation):
        axes[0].plot(*validation.T, color=ORANGE, marker="o", markersize=4, label="validation")
    average = series_of(history, "eval_ensemble_loss")
    if len(average):
        axes[0].plot(*average.T, color=GREEN, marker="s", markersize=4, label="validation, ensemble")
    chosen = validation[validation[:, 0] == selected_step]
    if len(chosen):
        axes[0].plot(*chosen.T, "o", markersize=11, markerfacecolor="none", color=INK, label="kept weights")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("loss")

    looks = cycle(((ORANGE, "o"), (GREEN, "s"), (PINK, "^"), (BLUE, "D")))
    for key, (color, marker) in zip(metrics, looks, strict=False):
        series = series_of(history, key)
        axes[1].plot(*series.T, color=color, marker=marker, markersize=4, label=metric_label(key))
        axes[1].set_ylabel("validation metric")
    for axis in axes:
        style_axis(axis)
        axis.legend(fontsize=9, framealpha=0.9, edgecolor="none")
    axes[-1].set_xlim(left=0)
    axes[-1].set_xlabel("optimizer step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    known = [phase for phase in phases if phase["first_step"] is not None]
    mark_phases(axes, known, [*(phase["first_step"] for phase in known), axes[-1].get_xlim()[1]])
    return figure


def plot_confusion_matrix(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> Figure:
    """Draw a confusion matrix: counts as numbers, the share of each true label as color.

    Args:
        matrix (`Sequence[Sequence[int]]`): examples by true (row) and predicted (column) label.
        labels (`Sequence[str]`): name of label id 0, 1, ...

    Raises:
        ValueError: the matrix is not square or does not fit the labels.
    """
    if not labels and not matrix:
        return empty_figure("no labels")
    counts = np.asarray(matrix, dtype=float)
    if counts.shape != (len(labels), len(labels)):
        raise ValueError(f"{len(labels)} labels need a square matrix of that size, got shape {counts.shape}.")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(3.2 + 0.45 * len(labels), 11)
    figure = Figure(figsize=(side + 0.9, side), layout="constrained")
    axis = figure.subplots()
    picture = axis.imshow(shares, cmap=SHARES, vmin=0, vmax=1)
    names = [_short(label) for label in labels]
    size = 9 if len(labels) <= MAX_NUMBERED_CLASSES else 6
    axis.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=size)
    axis.set_yticks(range(len(names)), names, fontsize=size)
    axis.set_xlabel("predicted label")
    axis.set_ylabel("true label")
    if len(labels) <= MAX_NUMBERED_CLASSES:
        for boundary in range(1, len(labels)):
            axis.axhline(boundary - 0.5, color=GRID, linewidth=0.8)
            axis.axvline(boundary - 0.5, color=GRID, linewidth=0.8)
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else INK if count else FAINT
            axis.text(column, row, f"{count:.0f}", ha="center", va="center", color=color, fontsize=9)
    bar = figure.colorbar(picture, ax=axis, label="share of the true label", shrink=0.8)
    bar.outline.set_visible(False)
    style_axis(axis, grid=False)
    return figure


def plot_plan(plan: dict[str, Any]) -> Figure:
    """Draw the plan as a table: one row per depth, one column per phase, with size, rate and decay.

    Args:
        plan (`dict`): the plan of a run.

    Returns:
        The figure. Cells are colored by the peak rate where the depth is trained, hatched where frozen.
    """
    depths, phases = plan["depths"], plan["phases"]
    if not depths or not phases:
        return empty_figure("nothing to train")
    figure = Figure(figsize=(WIDTH, 2.1 + 0.32 * len(depths)), layout="constrained")
    figure.suptitle(_plan_title(plan), x=0.01, ha="left", fontsize=11, color=INK)
    axis = figure.subplots()
    cells = np.linspace(4.0, 7.8, len(phases) + 1)
    _draw_plan_rows(axis, depths, cells)
    every, small = math.ceil(len(phases) / MAX_NAMED_PHASES), {"va": "bottom", "color": MUTED, "fontsize": 9}
    for x, side, title in PLAN_COLUMNS:
        axis.text(x, -0.2, title, ha=side, **small)
    angle = 35 if len(phases) > 1 else 0
    for x, phase in list(zip(cells, phases, strict=False))[::every]:
        axis.text(x, -0.2, _short(phase["name"]), rotation=angle, rotation_mode="anchor", **small)
    axis.set(xlim=(0, 10), ylim=(len(depths), -0.1))
    axis.set_xticks(cells[::every], _first_steps(plan)[::every])
    axis.set_yticks([])
    axis.set_xlabel("first optimizer step of the phase", x=0.59)
    style_axis(axis, grid=False)
    handles = [Patch(color=RATES(1.0), label="trained"), Patch(label="frozen", **FROZEN)]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    return figure


def metric_label(key: str) -> str:
    """Name of a metric for people: `eval_macro_f1` becomes `macro F1`."""
    words = key.removeprefix("eval_").replace("_", " ")
    words = words.replace("mlm", "masked-token").replace("nsp", "next-sentence")
    return words.replace("f1", "F1").replace("matthews", "Matthews")


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure; the suffix of the path (`.png`, `.svg`, `.pdf`) chooses the format.

    Args:
        figure (`Figure`): a figure of this module.
        path (`str` or `PathLike`): file to write, in a folder that exists.

    Returns:
        The path.
    """
    figure.savefig(path, dpi=150, facecolor="white")
    return Path(path)


def _plan_title(plan: dict[str, Any]) -> str:
    training, model = plan["training"], plan["model"]
    size = f"{_count(model['parameters'])} parameters"
    steps = f"{training['total_steps']:,} steps of {training['batch']['global']} examples"
    return f"{_short(model['name'], 40)}: {size}, {steps}"


def _draw_plan_rows(axis: Axes, depths: Sequence[dict[str, Any]], cells: np.ndarray) -> None:
    top = max(row["learning_rate"] for row in depths) or 1.0
    for y, row in enumerate(depths):
        rate, decay = f"{row['learning_rate']:.2e}", f"{row['weight_decay']:g}"
        texts = _depth_label(row), _count(row["parameters"]), rate, decay
        ink = ORANGE if row["reinitialised"] else INK
        for (x, side, _), text in zip(PLAN_COLUMNS, texts, strict=True):
            axis.text(x, y + 0.5, text, ha=side, va="center", color=ink)
        trained_look = {"facecolor": RATES(row["learning_rate"] / top), "linewidth": 0}
        for x, width, trained in zip(cells, np.diff(cells), row["trained_in"], strict=False):
            look = trained_look if trained else FROZEN
            axis.add_patch(Rectangle((x, y + 0.06), width - 0.03, 0.88, **look))


def _phase_edges(phases: Sequence[dict[str, Any]], total: int) -> np.ndarray:
    """First step of every phase, then the end. Unknown steps lie evenly between their known neighbors."""
    edges = np.array([*(phase["first_step"] for phase in phases), total], dtype=float)
    known = np.flatnonzero(np.isfinite(edges))
    return np.interp(np.arange(len(edges)), known, edges[known])


def _rates(plan: dict[str, Any], edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most 800 steps, and the rate of every depth at these steps (nan while frozen)."""
    total = plan["training"]["total_steps"]
    steps = np.unique(np.linspace(0, total - 1, min(total, 800)).round())
    factors = np.interp(steps, *np.asarray(plan["schedule"], dtype=float).T)
    phase = np.searchsorted(edges[1:-1], steps, side="right")
    trained = np.array([row["trained_in"] for row in plan["depths"]])[:, phase]
    peaks = np.array([row["learning_rate"] for row in plan["depths"]])
    return steps, np.where(trained, peaks[:, None] * factors, np.nan)


def _draw_rate_rows(rows: Axes, depths: Sequence[dict[str, Any]], rates: np.ndarray, total: int) -> None:
    rows.add_patch(Rectangle((0, -0.5), total, len(depths), zorder=-1, **FROZEN))
    rows.imshow(
        np.ma.masked_invalid(rates),
        cmap=RATES,
        vmin=0,
        vmax=max(np.nanmax(rates, initial=0), 1e-12),
        aspect="auto",
        interpolation="nearest",
        extent=(0, total, len(depths) - 0.5, -0.5),
    )
    for boundary in range(1, len(depths)):
        rows.axhline(boundary - 0.5, color="white", linewidth=1.2)
    rows.set_xlabel("optimizer step")
    rows.xaxis.set_major_locator(MaxNLocator(integer=True))
    style_axis(rows, grid=False)
    rows.set_yticks(range(len(depths)), [_depth_label(row) for row in depths])
    for name, row in zip(rows.get_yticklabels(), depths, strict=True):
        name.set_color(ORANGE if row["reinitialised"] else INK)
    if np.isnan(rates).any():
        rows.legend(handles=[Patch(label="frozen", **FROZEN)], loc="lower left", fontsize=9, framealpha=1)


def mark_phases(axes: Sequence[Axes], phases: Sequence[dict[str, Any]], edges: Sequence[float]) -> None:
    """Draw a line at the first step of every phase but the first (`edges`, then the end), names above."""
    few = len(phases) <= MAX_NAMED_PHASES
    names = [_short(phase["name"]) for phase in phases]
    room = np.diff(edges) / max(edges[-1], 1) / CHARACTER_WIDTH
    if any(len(name) > cells for name, cells in zip(names, room, strict=False)):
        names = [str(number) for number in range(1, len(phases) + 1)]  # the plan tells what they are
    for phase, edge, text in zip(phases, edges, names, strict=False):
        style = "-" if phase["first_step"] is not None else "--"
        for axis in axes if edge > 0 else ():
            axis.axvline(edge, color="#8b949e", linewidth=0.8 if few else 0.3, linestyle=style, zorder=1)
        if few and len(phases) > 1:
            place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            name = axes[0].annotate(text, (edge, 1), (1, 4), **place)
            name.set(fontsize=8, color=MUTED, annotation_clip=False)


def _first_steps(plan: dict[str, Any]) -> list[str]:
    steps = [phase["first_step"] for phase in plan["phases"]]
    return [*("?" if step is None else f"{step:,}" for step in steps), f"{plan['training']['total_steps']:,}"]


def _validation_metrics(history: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the logged validation metrics, in the order of their first appearance."""
    aside = ("_loss", "_runtime", "_time", "_per_second")
    keys = dict.fromkeys(key for row in history for key, value in row.items() if isinstance(value, (int, float)))
    return [k for k in keys if k.startswith("eval_") and not k.endswith(aside)]


def series_of(history: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    """Steps and values of a logged quantity, shape `(values, 2)`."""
    return np.array([(row["step"], row[key]) for row in history if key in row], dtype=float).reshape(-1, 2)


def _depth_label(row: dict[str, Any]) -> str:
    return f"{row['name']} (re-init)" if row["reinitialised"] else row["name"]


def _count(parameters: int) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.1f} {name}"
    return str(parameters)


def _short(label: str, length: int = 22) -> str:
    # A dollar sign would start a formula.
    label = label if len(label) <= length else label[: length - 1] + "…"
    return label.replace("$", r"\$")


def style_axis(axis: Axes, grid: bool = True) -> None:
    """Give an axis the look of all pictures; with `grid`, two spines and thin lines."""
    axis.tick_params(colors=INK, length=0 if not grid else 3)
    axis.xaxis.label.set_color(INK)
    axis.yaxis.label.set_color(INK)
    axis.spines[:].set_visible(False)
    if grid:
        axis.spines[["left", "bottom"]].set(visible=True, color=MUTED)
        axis.grid(color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)


def empty_figure(message: str) -> Figure:
    """A flat picture that says why there is none."""
    figure = Figure(figsize=(WIDTH, 1.2))
    figure.text(0.5, 0.5, message, ha="center", va="center", color=MUTED)
    return figure
