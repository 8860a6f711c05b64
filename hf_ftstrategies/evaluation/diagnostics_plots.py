"""Pictures of what diagnostics logged in a run, in the style of `plots`.

save(plot_layer_distance(results["history"], plan["phases"]), "layer_distance.png")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from hf_ftstrategies.evaluation.plots import (
    FROZEN,
    GREEN,
    INK,
    ORANGE,
    RATES,
    WIDTH,
    empty_figure,
    mark_phases,
    series_of,
    style_axis,
)

DISTANCE, UPDATE = "layer_distance/", "layer_update/"


def has_layer_distance(history: Sequence[dict[str, Any]]) -> bool:
    """Whether `LayerDistance` logged into this history."""
    return any(key.startswith(DISTANCE) for row in history for key in row)


def plot_layer_distance(history: Sequence[dict[str, Any]], phases: Sequence[dict[str, Any]] = ()) -> Figure:
    """Draw how far every layer is from its starting weights, and below how much it changed from log to log.

    Above, the L2 distance of head, blocks (the top one dark, the bottom one light) and embeddings; below, one row
    each with the change since the last log, relative to the weights, as color; hatched where it did not move.

    Args:
        history (`Sequence[dict]`): the Trainer's `log_history`.
        phases (`Sequence[dict]`, defaults to `()`): the plan's phases, to mark their boundaries.

    Returns:
        The figure; without such logs it says so.
    """
    keys = [key.removeprefix(DISTANCE) for row in history for key in row if key.startswith(DISTANCE)]
    layers = list(dict.fromkeys(keys))[::-1]
    if not layers:
        return empty_figure("no distances were logged")
    steps = np.array([0, *series_of(history, DISTANCE + layers[0])[:, 0]])
    updates = np.stack([series_of(history, UPDATE + layer)[:, 1] for layer in layers])
    colors = _colors(layers)
    figure = Figure(figsize=(WIDTH, 3.6 + 0.26 * len(layers)), layout="constrained")
    lines, rows = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, max(2.2, 0.3 * len(layers))])

    for color, layer in zip(colors, layers, strict=True):
        distances = series_of(history, DISTANCE + layer)[:, 1]
        lines.plot(steps, [0, *distances], color=color, linewidth=1.6, label=layer.replace("_", " "))
    lines.set(xlim=(0, steps[-1]), ylabel="distance to the start (L2)")
    lines.set_ylim(bottom=0)
    style_axis(lines)
    _draw_updates(rows, layers, steps, updates, colors)
    if rows.collections:
        bar = figure.colorbar(rows.collections[0], ax=rows, pad=0.02, fraction=0.06)
        bar.set_label("change since the last log,\nrelative to the weights", color=INK)
        bar.outline.set_visible(False)
    if (updates == 0).any():
        handles = [Patch(label="did not move", **FROZEN)]
        figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize=9)
    known = [phase for phase in phases if phase["first_step"] is not None]
    mark_phases((lines, rows), known, [*(phase["first_step"] for phase in known), steps[-1]])
    return figure


def _colors(layers: Sequence[str]) -> list:
    """Blocks in one hue, as their order; head and embeddings, which are of another kind, apart."""
    blocks = [layer for layer in layers if layer.startswith("block")]
    shades = dict(zip(blocks, RATES(np.linspace(1, 0.3, len(blocks))), strict=True))
    return [shades.get(layer, ORANGE if layer == "head" else GREEN) for layer in layers]


def _draw_updates(rows: Axes, layers: Sequence[str], steps: np.ndarray, updates: np.ndarray, colors: list) -> None:
    rows.add_patch(Rectangle((0, -0.5), steps[-1], len(layers), zorder=-1, **FROZEN))
    moved = np.ma.masked_less_equal(np.nan_to_num(updates, posinf=0.0), 0)
    if moved.count():
        norm = LogNorm(moved.min(), max(moved.max(), 1.1 * moved.min()))
        rows.pcolormesh(steps, np.arange(len(layers) + 1) - 0.5, moved, cmap=RATES, norm=norm)
    for boundary in range(1, len(layers)):
        rows.axhline(boundary - 0.5, color="white", linewidth=1.2)
    rows.set(ylim=(len(layers) - 0.5, -0.5), xlabel="optimizer step")
    rows.xaxis.set_major_locator(MaxNLocator(integer=True))
    style_axis(rows, grid=False)
    rows.set_yticks(range(len(layers)), [layer.replace("_", " ") for layer in layers])
    rows.tick_params(axis="y", pad=11)
    place = {"transform": rows.get_yaxis_transform(), "clip_on": False, "linewidth": 4, "solid_capstyle": "butt"}
    for y, color in enumerate(colors):  # of the layer's line above
        rows.plot([-0.01, -0.01], [y - 0.36, y + 0.36], color=color, **place)
