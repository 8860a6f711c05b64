"""What a run was worth, for people: one HTML page (`write_report`) and the last table of the console.

Both take their facts from `results.json` and `plan.json` alone, so that an old run can be reported again.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text
from scipy import stats

from hf_ftstrategies.evaluation import plots
from hf_ftstrategies.evaluation.diagnostics_plots import has_layer_distance, plot_layer_distance
from hf_ftstrategies.evaluation.pretraining_plots import plot_pretraining, plot_starting_points
from hf_ftstrategies.evaluation.seeds import plot_seeds

RESULT_FACTS = ("recipe", "title", "dataset", "model", "seed", "metrics", "baseline", "history", "selected")
RESULT_FACTS += ("time", "peak_memory_mib", "versions", "hardware", "command")
PLAN_FACTS = ("model", "training", "strategies", "depths", "phases", "schedule")


def write_report(path: str | os.PathLike[str], results: dict[str, Any], plan: dict[str, Any]) -> Path:
    """Write the report of a run as one HTML file that needs nothing else, no network either.

    Args:
        path (`str` or `PathLike`): file to write, in a folder that exists.
        results (`dict`): the contents of `results.json`. `confusion_matrix` and `per_class` may be absent (a
            regression has none); everything else is needed.
        plan (`dict`): the contents of `plan.json`.

    Returns:
        The path.

    Raises:
        ValueError: facts are missing; they are named.
    """
    check_facts(results, plan)
    pictures = {name: _data_uri(figure) for name, figure in draw(results, plan).items()}
    html = (
        template_environment(Path(__file__).parent, autoescape=True)
        .get_template("report.html.jinja")
        .render(results=results, plan=plan, headline=headline(results), pictures=pictures)
    )
    Path(path).write_text(html, encoding="utf-8")
    return Path(path)


def format_summary(results: dict[str, Any]) -> Group:
    """Make the final table of a run: metrics by split, scores by label, time and peak memory.

    Args:
        results (`dict`): the contents of `results.json`.

    Returns:
        A rich renderable: `rich.print(format_summary(results))`.
    """
    splits = results["metrics"]
    table = Table(title=Text(results["title"]), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    for split in splits:
        table.add_column(split, justify="right")
    for name in metric_names(results):
        values = (f"{scores[name]:.4f}" if name in scores else "" for scores in splits.values())
        table.add_row(plots.metric_label(name), *values)
    best = headline(results)
    if best["baseline"] is not None:
        cells = (f"{best['baseline']:.4f}" if split == best["split"] else "" for split in splits)
        table.add_row(f"majority baseline ({plots.metric_label(best['metric'])})", *cells, style="dim")
    parts = [table]
    if "seeds" in results:
        spread = results["seeds"]["metrics"][best["split"]][best["metric"]]
        count, name = len(results["seeds"]["runs"]), f"{best['split']} {plots.metric_label(best['metric'])}"
        kept = f"above: seed {results['seed']}, best on validation"
        parts.append(Text(f"{count} seeds: {name} {spread['mean']:.4f} ± {spread['std']:.4f} ({kept})\n"))
    per_class = splits[best["split"]].get("per_class")
    if per_class:
        parts.append(_per_class_table(per_class, best["split"]))
    seconds, memory, before = results["time"], results["peak_memory_mib"], results.get("further_pretraining")
    parts.append(
        Text(
            f"time {duration(seconds['total_seconds'])} (training {duration(seconds['train_seconds'])}, "
            f"evaluation {duration(seconds['evaluate_seconds'])})"
            + (f", after {duration(before['train_seconds'])} of further pre-training" if before else "")
            + (f", peak memory {memory:,.0f} MiB" if memory else "")
        )
    )
    return Group(*parts)


def headline(results: dict[str, Any]) -> dict[str, Any]:
    """Pick the one result that stands at the top of the report and the card.

    It is the first metric of the data set (Matthews correlation for CoLA, say); on test where test was
    evaluated.

    Args:
        results (`dict`): the contents of `results.json`.

    Returns:
        `{"split", "metric", "value", "examples", "baseline", "interval"}`. `baseline`
        is what always giving the most frequent training label gets, None if unknown; for accuracy `interval`
        is Wilson's 95 % interval, which knows the size of the split but nothing about seeds, else None.
    """
    metrics = results["metrics"]
    split = "test" if "test" in metrics else next(iter(metrics))
    examples = results["dataset"]["splits"][split]
    metric = results["dataset"]["metric"]
    value, baseline, interval = metrics[split][metric], results["baseline"].get(metric), None
    if metric == "accuracy" and examples:
        test = stats.binomtest(round(value * examples), examples)
        interval = tuple(map(float, test.proportion_ci(method="wilson")))
    return {
        "split": split,
        "metric": metric,
        "value": value,
        "examples": examples,
        "baseline": baseline,
        "interval": interval,
    }


def metric_names(results: dict[str, Any]) -> list[str]:
    """Names of all metrics with one number per split, in the order of their first appearance."""
    items = (item for scores in results["metrics"].values() for item in scores.items())
    return list(dict.fromkeys(name for name, value in items if isinstance(value, (int, float))))


def check_facts(results: dict[str, Any], plan: dict[str, Any]) -> None:
    """Raise a ValueError that names the facts which results or plan lack."""
    for name, facts, needed in (("results", results, RESULT_FACTS), ("plan", plan, PLAN_FACTS)):
        missing = [key for key in needed if key not in facts]
        if missing:
            raise ValueError(f"The {name} lack {', '.join(missing)}; found {', '.join(facts) or 'nothing'}.")


def template_environment(folder: Path, autoescape: bool) -> jinja2.Environment:
    """Templates of `folder` with the filters that report and card share; an unknown name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "metric": plots.metric_label,
        "duration": duration,
        "percent": lambda share: f"{100 * share:.1f} %",
        "settings": lambda values: ", ".join(f"{key} = {value}" for key, value in values.items()),
        "phases": _trained_phases,
    }
    environment.globals["metric_names"] = metric_names
    return environment


def duration(seconds: float) -> str:
    """Write seconds for people: `8.3 s`, `3 min 24 s`, `2 h 05 min`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _trained_phases(trained: list[bool]) -> str:
    """Numbers of the phases in which a depth is trained, as ranges: `2-4, 8`."""
    ranges: list[list[int]] = []
    for number in (index for index, on in enumerate(trained, start=1) if on):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges) or "never"


def _per_class_table(per_class: dict[str, dict[str, float]], split: str) -> Table:
    table = Table(title=f"by label ({split})", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("label")
    for column in ("precision", "recall", "F1", "support"):
        table.add_column(column, justify="right")
    for label, scores in per_class.items():
        numbers = (f"{scores[key]:.3f}" for key in ("precision", "recall", "f1"))
        # Text, because a label such as "[red]" is no markup.
        table.add_row(Text(label), *numbers, str(scores["support"]))
    return table


def draw(results: dict[str, Any], plan: dict[str, Any]) -> dict[str, Figure]:
    """Make the pictures of a run, by the names of their files.

    Args:
        results (`dict`): the contents of `results.json`.
        plan (`dict`): the contents of `plan.json`.
    """
    pictures = {
        "plan": plots.plot_plan(plan),
        "learning_rates": plots.plot_learning_rates(plan),
        "loss": plots.plot_loss(results["history"], plan["phases"], results["selected"]["step"]),
    }
    if has_layer_distance(results["history"]):
        pictures["layer_distance"] = plot_layer_distance(results["history"], plan["phases"])
    if results.get("confusion_matrix"):
        labels = results["dataset"]["labels"]
        pictures["confusion_matrix"] = plots.plot_confusion_matrix(results["confusion_matrix"], labels)
    if "seeds" in results:
        pictures["seeds"] = plot_seeds(results["seeds"], results["dataset"]["metric"])
    pretrained = results.get("further_pretraining")
    if pretrained:
        pictures["further_pretraining"] = plot_pretraining(pretrained["history"])
    if pretrained and "curve" in pretrained:
        metric, chosen = results["dataset"]["metric"], pretrained["fine_tuned_from"]
        pictures["starting_points"] = plot_starting_points(pretrained["curve"], metric, chosen)
    return pictures


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
