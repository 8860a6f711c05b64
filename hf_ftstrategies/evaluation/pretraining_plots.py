"""Pictures of a further pre-training: its losses, and what fine-tuning from its steps gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hf_ftstrategies.evaluation.plots import BLUE, GREEN, MUTED, ORANGE, WIDTH, metric_label, series_of, style_axis


def plot_pretraining(history: Sequence[dict[str, Any]]) -> Figure:
    """Draw the losses of a further pre-training over its steps, and below them what it predicts on held-out texts.

    Args:
        history (`Sequence[dict]`): `results["further_pretraining"]["history"]`.

    Returns:
        The figure; without next sentence prediction it has one curve less in each part.
    """
    figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
    losses, accuracies = figure.subplots(2, 1, sharex=True)
    names = (("mlm", "masked tokens", BLUE), ("nsp", "next sentence", ORANGE))
    for key, name, color in names:
        train, held_out = series_of(history, f"{key}_loss"), series_of(history, f"eval_{key}_loss")
        if len(train):
            losses.plot(*train.T, color=color, linewidth=1.4, label=f"{name}, training")
        if len(held_out):
            losses.plot(*held_out.T, "o--", color=color, markersize=4, linewidth=1, label=f"{name}, held-out texts")
        right = series_of(history, f"eval_{key}_accuracy")
        if len(right):
            accuracies.plot(*right.T, "o-", color=color, markersize=4, label=name)
    losses.set_ylim(bottom=0)
    losses.set_ylabel("loss")
    accuracies.set_ylim(0, 1)
    accuracies.set_ylabel("held-out accuracy")
    for axis in (losses, accuracies):
        style_axis(axis)
        if axis.lines:
            axis.legend(fontsize=9, framealpha=0.9, edgecolor="none")
    accuracies.set_xlim(left=0)
    accuracies.set_xlabel("step of the further pre-training")
    accuracies.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def plot_starting_points(curve: Sequence[dict[str, Any]], metric: str, chosen: int) -> Figure:
    """Draw the metric after fine-tuning against the steps of the pre-training that it started from.

    Args:
        curve (`Sequence[dict]`): `results["further_pretraining"]["curve"]`.
        metric (`str`): Which metric; accuracy is drawn as error in %.
        chosen (`int`): The starting point whose model was kept.

    Paper: Sun et al. 2019, figure 3.
    """
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axis = figure.subplots()
    error = metric == "accuracy"
    for split, color, marker in (("validation", ORANGE, "o"), ("test", GREEN, "s")):
        points = [(p["step"], p["metrics"][split][metric]) for p in curve if split in p["metrics"]]
        if points:
            steps, values = zip(*points, strict=True)
            values = [100 * (1 - value) for value in values] if error else values
            axis.plot(steps, values, marker=marker, color=color, markersize=5, label=split)
    axis.axvline(chosen, color=MUTED, linewidth=1, linestyle=":", label="kept: best on validation")
    style_axis(axis)
    axis.set_xlim(left=0)
    axis.set_xlabel("steps of further pre-training before fine-tuning")
    axis.set_ylabel("error in %" if error else metric_label(metric))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(fontsize=9, framealpha=0.9, edgecolor="none")
    return figure


def plot_few_shot(points: Sequence[dict[str, Any]]) -> Figure:
    """Draw the test error against the number of labels, with and without further pre-training.

    Args:
        points (`Sequence[dict]`): Of `recipes/few_shot_itpt.py`.

    Paper: Sun et al. 2019, figure 4.
    """
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    axis = figure.subplots()
    looks = ((False, "without further pre-training", ORANGE, "o"), (True, "with further pre-training", BLUE, "s"))
    for kind, name, color, marker in looks:
        own = [point for point in points if point["further_pretrained"] == kind]
        split = "test" if own and "test" in own[0]["metrics"] else "validation"
        errors = [100 * (1 - point["metrics"][split]) for point in own]
        axis.plot([point["rows"] for point in own], errors, marker=marker, color=color, markersize=5, label=name)
        axis.set_ylabel(f"{split} error in %")
    rows = sorted({point["rows"] for point in points})
    axis.set_xscale("log")
    axis.set_xticks(rows, [f"{count:,}" for count in rows], fontsize=9)
    axis.minorticks_off()
    axis.set_xlabel("training examples with labels")
    axis.set_ylim(bottom=0)
    style_axis(axis)
    axis.legend(fontsize=9, framealpha=0.9, edgecolor="none")
    return figure
