"""One run with several seeds: means, spread, and a picture of every seed's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from hf_ftstrategies.evaluation.plots import BLUE, GREEN, MUTED, ORANGE, WIDTH, metric_label, style_axis


def numbers_of(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Metrics of each split of a run, without the tables by label.

    Args:
        results (`dict`): the contents of `results.json`.
    """
    return {
        split: {k: v for k, v in scores.items() if k != "per_class"} for split, scores in results["metrics"].items()
    }


def compare_seeds(results: Mapping[int, dict[str, Any]], chosen: int) -> dict[str, Any]:
    """What runs that differ in nothing but their seed have in common.

    Args:
        results (`Mapping[int, dict]`): the contents of `results.json`, by seed; two or more.
        chosen (`int`): The seed whose model was kept.

    Returns:
        `{"chosen", "runs", "metrics", "selected_mean"}`: `runs` lists seed, step and metrics of each; `metrics` has
        by split and metric `mean`, `std` (of the sample, n - 1), `min` and `max`; `selected_mean` is the mean of the
        validation metric that chose the weights.
    """
    runs = [
        {"seed": seed, "step": result["selected"]["step"], "metrics": numbers_of(result)}
        for seed, result in results.items()
    ]
    first = runs[0]["metrics"]
    spread = {
        split: {name: _spread([run["metrics"][split][name] for run in runs]) for name in first[split]}
        for split in first
    }
    selected = fmean(result["selected"]["value"] for result in results.values())
    return {"chosen": chosen, "runs": runs, "metrics": spread, "selected_mean": selected}


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": fmean(values), "std": stdev(values), "min": min(values), "max": max(values)}


def plot_seeds(seeds: dict[str, Any], metric: str) -> Figure:
    """Draw the metric of each seed on each split, their mean, and one standard deviation to both sides.

    Args:
        seeds (`dict`): `results["seeds"]`.
        metric (`str`): Which metric.
    """
    splits = list(seeds["metrics"])
    figure = Figure(figsize=(WIDTH, 1.3 + 0.75 * len(splits)), layout="constrained")
    axis = figure.subplots()
    for row, (split, color) in enumerate(zip(splits, (ORANGE, GREEN), strict=False)):
        spread = seeds["metrics"][split][metric]
        low, high = spread["mean"] - spread["std"], spread["mean"] + spread["std"]
        axis.plot([low, high], [row, row], color=color, linewidth=9, alpha=0.18, solid_capstyle="butt")
        axis.plot([spread["mean"]] * 2, [row - 0.22, row + 0.22], color=color, linewidth=2)
        seen: Counter[float] = Counter()
        for run in seeds["runs"]:
            kept, value = run["seed"] == seeds["chosen"], run["metrics"][split][metric]
            look = {"marker": "D", "color": BLUE, "zorder": 4} if kept else {"marker": "o", "color": color}
            axis.plot(value, row - 0.17 * seen[value], ms=7, **look)  # equal ones above each other
            seen[value] += 1
    axis.plot([], [], "D", color=BLUE, ms=7, label="seed kept (best on validation)")
    axis.plot([], [], "o", color=MUTED, ms=7, label="other seeds")
    axis.plot([], [], color=MUTED, linewidth=2, label="mean")
    axis.plot([], [], color=MUTED, linewidth=9, alpha=0.18, label="one standard deviation")
    axis.set_yticks(range(len(splits)), splits)
    axis.set_ylim(len(splits) - 0.5, -0.5)
    axis.set_xlabel(metric_label(metric))
    style_axis(axis)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure
