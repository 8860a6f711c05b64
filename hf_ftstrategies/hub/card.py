"""The model card of a run: README.md with the metadata that the Hugging Face Hub reads.

Everything on the card comes from `results.json` and `plan.json`. Paths of the machine that trained the model
do not belong on a public page: absolute ones are cut to their last part.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

import hf_ftstrategies
from hf_ftstrategies.evaluation.plots import metric_label
from hf_ftstrategies.evaluation.report import check_facts, headline, metric_names, template_environment

TASK = "text-classification"
# The Hub's ids of metrics that have another name here.
HUB_METRICS = {
    "macro_f1": "f1",
    "multilabel_micro_f1": "f1",
    "multilabel_macro_f1": "f1",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# /a/b, ~/a, file:///a and C:\a\b, but neither URLs nor relative paths nor "and/or".
ABSOLUTE_PATH = re.compile(
    r"""(?<![\w/.~)\]-])(?:(?:file://|~|[A-Za-z]:)?/|[A-Za-z]:\\)(?:[^\s"'`\\/]+[\\/])*([^\s"'`\\/]+)[\\/]?"""
)


def write_card(
    path: str | os.PathLike[str],
    results: dict[str, Any],
    plan: dict[str, Any],
    base_model: str,
    license: str | None = None,
) -> Path:
    """Write the model card.

    Args:
        path (`str` or `PathLike`): file to write, usually `README.md` in the folder of the model.
        results (`dict`): the contents of `results.json`. `results["dataset"]` may have the
            data set's `hub_id`, `hub_config`, `language` (ISO 639) and `licence`; only with the first the card
            links to it.
        plan (`dict`): the contents of `plan.json`.
        base_model (`str`): Hub id of the model that was fine-tuned. A local folder is called by its last part
            and left out of the metadata, which may hold Hub ids only.
        license (`str`, *optional*): license id of the Hub, such as `apache-2.0`.

    Returns:
        The path.

    Raises:
        ValueError: facts are missing; they are named.
    """
    check_facts(results, plan)
    results, plan = without_paths(results), without_paths(plan)
    # A folder of that name is what from_pretrained would have loaded.
    on_hub = HUB_ID.fullmatch(base_model) is not None and not Path(base_model).exists()
    metadata = _metadata(results, plan, base_model if on_hub else None, license)
    environment = template_environment(Path(__file__).parent, autoescape=False)
    environment.filters["text"] = _text
    name = plan["model"]["class"]
    own_class = name if name in hf_ftstrategies.__all__ else None
    body = environment.get_template("model_card.md.jinja").render(
        results=results,
        plan=plan,
        headline=headline(results),
        base_model=base_model if on_hub else re.split(r"[\\/]", base_model.rstrip("\\/"))[-1],
        on_hub=on_hub,
        license=license,
        own_class=own_class,
        has_code=results.get("has_code", own_class is not None),  # results of older runs do not say
    )
    ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{body}").save(path)
    return Path(path)


def _metadata(results, plan, base_model, license) -> ModelCardData:
    evaluations = _evaluations(results)
    return ModelCardData(
        language=_known(results, "language"),
        license=license,
        library_name="transformers",
        base_model=base_model,
        datasets=_known(results, "hub_id"),
        tags=["hf-ftstrategies", *_stages(results), *(strategy["name"] for strategy in plan["strategies"])],
        pipeline_tag=TASK,
        metrics=list(dict.fromkeys(evaluation.metric_type for evaluation in evaluations)),
        model_name=results["recipe"],
        eval_results=evaluations,
    )


def _stages(results: dict[str, Any]) -> list[str]:
    return [name for name in ("further_pretraining", "multitask") if name in results]


def _tasks(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured on which data set: of one model with several heads one each."""
    return list(results.get("tasks", {"": results}).values())


def _known(results: dict[str, Any], name: str) -> list[str] | None:
    """A fact about the data sets of all tasks, those of the stage before too, each value once."""
    before = results.get("multitask", {}).get("tasks", {}).values()
    found = (task["dataset"].get(name) for task in (*_tasks(results), *before))
    return list(dict.fromkeys(value for value in found if value is not None)) or None


def _evaluations(results: dict[str, Any]) -> list[EvalResult]:
    """Every metric of every split of every task."""
    return [
        EvalResult(
            task_type=TASK,
            task_name="Text Classification",
            dataset_type=task["dataset"].get("hub_id")
            or re.sub(r"\W+", "_", task["dataset"]["name"].lower()).strip("_"),
            dataset_name=task["dataset"]["name"],
            dataset_config=task["dataset"].get("hub_config"),
            dataset_split=split,
            metric_type=HUB_METRICS.get(metric, metric),
            metric_name=metric_label(metric),
            metric_value=round(scores[metric], 6),
        )
        for task in _tasks(results)
        for split, scores in task["metrics"].items()
        for metric in metric_names(task)
        if metric != "loss" and metric in scores
    ]


def without_paths(value: Any) -> Any:
    """Copy JSON-like facts with every absolute path in a string cut to its last part."""
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    return ABSOLUTE_PATH.sub(r"\1", value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    """Escape a fact, so that Markdown shows it as it is, in a table cell too."""
    escaped = re.sub(r"([\\`*\[\]|])", r"\\\1", html.escape(str(value), quote=False))
    return " ".join(escaped.split())
