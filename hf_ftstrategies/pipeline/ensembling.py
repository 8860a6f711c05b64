"""Vote and average of trained models, evaluated on the data that they were trained for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text
from transformers import AutoTokenizer, PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_utils import EvalPrediction
from transformers.utils import logging as transformers_logging

from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.tasks import get_task
from hf_ftstrategies.evaluation.ensembles import average_models, load_trained, vote
from hf_ftstrategies.evaluation.plots import metric_label
from hf_ftstrategies.evaluation.scores import compute_metrics_for
from hf_ftstrategies.modeling.as_trained import keep_reading
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.fine_tuning import load_splits, make_collator, tokenise
from hf_ftstrategies.pipeline.output import MANIFEST

if TYPE_CHECKING:
    from datasets import Dataset

# Fields of a run that say which rows it sees; the others say how they become features.
_ROWS = ("dataset", "task", "text_column", "text_pair_column", "label_column", "on_bad_rows", "split_seed")
_ROWS += ("train_rows", "validation_rows", "test_rows", "split_scheme", "streaming")
_BATCH = 32


def evaluate_ensemble(
    folders: Sequence[str],
    *,
    with_vote: bool = True,
    with_average: bool = True,
    dataset: str | None = None,
    data_root: str | None = None,
    split: str = "test",
    output_dir: str | None = None,
) -> dict[str, Any]:
    """Evaluate models one by one, their vote, and the model with the mean of their parameters.

    Rows and features are those of the recipes that made the models, as their manifests tell.

    Args:
        folders (`Sequence[str]`): Of outputs of recipes, of checkpoints within them, or of other models (for these,
            give `dataset`; their rows become features as by default).
        with_vote, with_average (`bool`, *optional*, default to `True`): What to make of the models.
        dataset (`str`, *optional*): Another data set than that of the recipes.
        data_root (`str`, *optional*): Folder of data sets, as of recipes.
        split (`str`, *optional*, defaults to `"test"`): `"test"`, `"validation"` or `"train"`.
        output_dir (`str`, *optional*): Folder for the averaged model, its tokenizer and these facts.

    Returns:
        `dict`: `dataset`, `split`, `rows`, `folders` and `metrics` by name: each folder, `"vote"`, `"average"`.

    Raises:
        ValueError: fewer than two models, models of different data or labels, an unknown split, an output folder
            that holds something.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    _check_output(output_dir, with_average)
    if len(set(folders)) < 2:
        raise ValueError(f"An ensemble needs at least 2 different models, got {', '.join(folders) or 'none'}.")
    runs = [run_of(folder, dataset, data_root) for folder in folders]
    _check_same_rows(runs, folders)
    splits, info, _ = load_splits(runs[0])
    if split not in splits:
        raise ValueError(f"The data set {info.name!r} has no labelled split {split!r}, but {', '.join(splits)}.")
    score = compute_metrics_for(info.metrics, info.label_names)
    logits, labels, metrics = [], None, {}
    for folder, run in zip(folders, runs):
        output = _predict(load_trained(folder), folder, splits[split], info, run)
        logits, labels = [*logits, output.predictions], output.label_ids
        metrics[folder] = score(output)
    if with_vote:
        voted = vote(logits, get_task(info.task).label_kind)
        metrics["vote"] = score(EvalPrediction(predictions=voted, label_ids=labels))
    facts = {"dataset": info.name, "split": split, "rows": len(splits[split]), "folders": list(folders)}
    facts["metrics"] = metrics
    if with_average:
        model = average_models(folders)
        metrics["average"] = score(_predict(model, folders[0], splits[split], info, runs[0]))
        if output_dir is not None:
            _save(Path(output_dir), model, folders[0], facts)
    return facts


def run_of(folder: str, dataset: str | None = None, data_root: str | None = None) -> RunArguments:
    """What the run that made a model was about, by the manifest in its folder or, of a checkpoint, two above.

    Args:
        folder (`str`): Of a model.
        dataset (`str`, *optional*): Instead of the run's; its rows then are all there are.
        data_root (`str`, *optional*): Not in the manifest, because it says nothing about the run.

    Raises:
        ValueError: neither a manifest nor a data set.
    """
    places = (Path(folder, MANIFEST), Path(folder).resolve().parent.parent / MANIFEST)
    manifest = next((place for place in places if place.is_file()), None)
    if manifest is None and dataset is None:
        raise ValueError(f"{folder!r} has no {MANIFEST} that names its data set: give --dataset.")
    settings = {} if manifest is None else json.loads(manifest.read_text(encoding="utf-8"))["settings"]
    known = {field.name for field in dataclasses.fields(RunArguments)}
    settings = {name: value for name, value in settings.items() if name in known}
    if dataset not in (None, settings.get("dataset")):
        settings = {name: value for name, value in settings.items() if name not in _ROWS} | {"dataset": dataset}
    return RunArguments(**{**settings, "data_root": data_root})


def _check_output(output_dir: str | None, with_average: bool) -> None:
    if output_dir is None:
        return
    if not with_average:
        raise ValueError(f"output_dir is {output_dir!r}, but a vote is no model that could be saved: add --average.")
    if Path(output_dir).exists() and (not Path(output_dir).is_dir() or any(Path(output_dir).iterdir())):
        raise ValueError(f"output_dir {output_dir!r} is there already and not empty: choose another.")


def _check_same_rows(runs: Sequence[RunArguments], folders: Sequence[str]) -> None:
    for folder, run in zip(folders, runs):
        for name in _ROWS:
            first, other = getattr(runs[0], name), getattr(run, name)
            if first != other:
                raise ValueError(
                    f"The models were made for different rows: {name} is {first!r} in {folders[0]!r} and {other!r} "
                    f"in {folder!r}. Give --dataset to evaluate them all on one data set."
                )


def _predict(
    model: PreTrainedModel, folder: str, rows: Dataset, info: DatasetInfo, run: RunArguments
) -> EvalPrediction:
    """Logits and labels of the rows, from the tokenizer in the folder."""
    found = [model.config.id2label[index] for index in range(model.config.num_labels)]
    if info.label_names and found != list(info.label_names):
        raise ValueError(
            f"{folder!r} has the labels {', '.join(found)}, the data set {info.name!r} {', '.join(info.label_names)}: "
            "they must be the same in the same order."
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with TemporaryDirectory() as nowhere:  # a Trainer makes its output folder at once
        args = TrainingArguments(
            nowhere,
            per_device_eval_batch_size=_BATCH,
            disable_tqdm=True,
            report_to="none",
            dataloader_pin_memory=False,
        )
        trainer = Trainer(model, args, data_collator=make_collator(run, tokenizer))
        output = trainer.predict(tokenise(rows, "the split", tokenizer, info, run))
    logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    return EvalPrediction(predictions=np.asarray(logits), label_ids=output.label_ids)


def _save(folder: Path, model: PreTrainedModel, first: str, facts: dict[str, Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(first)
    if (reading := getattr(model.config, "reading", None)) is not None:
        keep_reading(model, tokenizer, reading, folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "ensemble.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def ensemble_table(facts: dict[str, Any]) -> Table:
    """The facts of `evaluate_ensemble` for a terminal: a row for each model, the vote and the average."""
    names = list(next(iter(facts["metrics"].values())))
    table = Table(title=Text(f"{facts['split']}, {facts['rows']:,} rows of {facts['dataset']}"), title_justify="left")
    table.add_column("model")
    for name in names:
        table.add_column(metric_label(name), justify="right")
    for model, metrics in facts["metrics"].items():
        table.add_row(Text(model), *(f"{metrics[name]:.4f}" for name in names))
    return table
