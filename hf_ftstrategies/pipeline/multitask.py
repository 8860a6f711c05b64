"""The stage between further pre-training and fine-tuning: several tasks together, one encoder, a head for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import AutoModel, AutoTokenizer, set_seed
from transformers.trainer_utils import EvalPrediction

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.data.checks import text_key
from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.multitask import MultiTaskRows
from hf_ftstrategies.data.tasks import get_task
from hf_ftstrategies.evaluation.scores import compute_metrics_for
from hf_ftstrategies.modeling.loading import check_fit
from hf_ftstrategies.modeling.multitask import MultiTaskClassifier
from hf_ftstrategies.modeling.packaged import PretrainedSource
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.fine_tuning import (
    divide_batches,
    load_pretrained,
    load_splits,
    make_collator,
    reading_of,
    save_with_reading,
    tokenise,
)
from hf_ftstrategies.pipeline.interruptions import GuardedTrainer
from hf_ftstrategies.pipeline.machine import hardware, peak_memory_mib, versions
from hf_ftstrategies.pipeline.multitask_arguments import MultiTaskArguments
from hf_ftstrategies.pipeline.progress import hush_transformers
from hf_ftstrategies.pipeline.training import train_stage

if TYPE_CHECKING:
    from datasets import Dataset

ENCODER = "encoder"
MEAN = "mean_score"
# What of the run's strategies also acts here: rates, schedule, optimizer.
_KEPT = (
    "layer_decay", "layer_decay_style", "head_learning_rate", "lr_schedule", "stlr_cut_fraction", "stlr_ratio",
    "bias_correction", "max_grad_norm_per_tensor",
)  # fmt: skip


@dataclass
class Task:
    """One of the tasks: what its data set is, its tokenised splits, and what a reader should know of them."""

    info: DatasetInfo
    splits: dict[str, Dataset]
    notes: list[str]


@dataclass
class MultiTaskTraining:
    """A prepared multi-task fine-tuning: data tokenised, model loaded, trainer built, nothing trained.

    Args:
        run (`RunArguments`), args (`StrategyTrainingArguments`), options (`MultiTaskArguments`): As given.
        source (`PretrainedSource`): Of the encoder.
        tasks (`dict[str, Task]`): By name, in the order of the model's heads.
        trainer (`StrategyTrainer`): Ready to train.
    """

    run: RunArguments
    args: StrategyTrainingArguments
    options: MultiTaskArguments
    source: PretrainedSource
    tasks: dict[str, Task]
    trainer: GuardedTrainer

    def train(self) -> float:
        """Train, or go on from the last checkpoint. Returns the seconds it took."""
        return train_stage(self.trainer, "multi-task fine-tuning")

    def evaluate(self) -> dict[str, Any]:
        """Metrics of every task and split, and over the tasks the mean of the metrics that stand for them."""
        tasks = {name: self._evaluate(number, task) for number, (name, task) in enumerate(self.tasks.items())}
        means = {}
        for split in ("validation", "test"):
            scores = [task["metrics"][split][task["metric"]] for task in tasks.values() if split in task["metrics"]]
            if len(scores) == len(tasks):
                means[split] = {MEAN: float(np.mean(scores))}
        baseline = {MEAN: float(np.mean([task["baseline"][task["metric"]] for task in tasks.values()]))}
        selected = {"step": self.trainer.state.global_step, "metric": MEAN, "value": means["validation"][MEAN]}
        return {"tasks": tasks, "metrics": means, "baseline": baseline, "selected": selected}

    def _evaluate(self, number: int, task: Task) -> dict[str, Any]:
        """One task, by its own metrics."""
        info, rows, metrics = task.info, {split: len(rows) for split, rows in task.splits.items()}, {}
        score = self.trainer.compute_metrics = compute_metrics_for(info.metrics, info.label_names)
        for split in [split for split in ("validation", "test") if split in rows]:
            examples = task.splits[split].add_column("task_ids", [number] * rows[split])
            output = self.trainer.predict(examples, metric_key_prefix=split)
            metrics[split] = {name: output.metrics[f"{split}_{name}"] for name in ("loss", *info.metrics)}
            guesses = get_task(info.task).baseline(task.splits["train"]["labels"], rows[split])
            baseline = score(EvalPrediction(predictions=guesses, label_ids=output.label_ids))
        scores = {"metric": info.metric, "metrics": metrics, "baseline": baseline}
        return {"dataset": {"name": info.name, **info.published_as()}, **scores, "rows": rows}

    def facts(self) -> dict[str, Any]:
        """What there is to know besides the metrics, as JSON values."""
        truncated: dict[str, list[bool]] = {}
        for task in self.tasks.values():
            for split, rows in task.splits.items():
                truncated.setdefault(split, []).extend(rows["truncated"])
        return {
            "dataset": {
                "name": ", ".join(task.info.name for task in self.tasks.values()),
                "labels": [],
                "splits": {split: len(flags) for split, flags in truncated.items()},
                "truncated_share": {split: float(np.mean(flags)) for split, flags in truncated.items()},
                "metric": MEAN,
                "notes": [f"{name}: {note}" for name, task in self.tasks.items() for note in task.notes],
            },
            "model": self.source.hub_id,
            "has_code": True,
            "reading": self._reading(),
            "seed": self.args.seed,
            "history": self.trainer.state.log_history,
            "peak_memory_mib": peak_memory_mib(self.args.device),
            "versions": versions(),
            "hardware": hardware(self.args.device, self.args.world_size),
        }

    def _reading(self) -> dict[str, Any]:
        pairs = all(len(task.info.text_columns) > 1 for task in self.tasks.values())
        return reading_of(self.run, self.trainer.processing_class, pairs)

    def save(self, folder: Path) -> None:
        """Write the model with all heads and its tokenizer, and below them the encoder alone for what comes next.

        A pooler that the encoder came with is in the latter, as it was: this stage reads [CLS] without it.
        """
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        save_with_reading(model, self.trainer.processing_class, self._reading(), folder)
        encoder = AutoModel.from_pretrained(self.source.path, trust_remote_code=self.run.trust_remote_code).float()
        unknown = encoder.load_state_dict(model.encoder.state_dict(), strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"The encoder alone has no place for what was trained as {unknown[0]!r}.")
        encoder.save_pretrained(folder / ENCODER)
        self.trainer.processing_class.save_pretrained(folder / ENCODER)


def prepare_multitask(
    run: RunArguments,
    args: StrategyTrainingArguments,
    options: MultiTaskArguments,
    output_dir: Path,
    source: PretrainedSource,
) -> MultiTaskTraining:
    """Everything up to the first training step; whatever is wrong with the input is said here.

    Args:
        run (`RunArguments`): How rows become features, and what is read of the encoder; of each task alike.
        args (`StrategyTrainingArguments`): Of the fine-tuning that follows.
        options (`MultiTaskArguments`): Of this stage.
        output_dir (`Path`): Where its checkpoints go.
        source (`PretrainedSource`): Of the encoder.

    Raises:
        ValueError: before the model is loaded, where that is possible.
    """
    hush_transformers()
    if run.streaming or run.feature_based:
        raise ValueError("multitask reads all rows and trains the encoder: leave out streaming and feature_based.")
    trusted = {"trust_remote_code": run.trust_remote_code}
    tokenizer = load_pretrained(partial(AutoTokenizer.from_pretrained, **trusted), source, run.model)
    tasks = _without_held_out_texts({name: _load(run, dataset) for name, dataset in options.tasks.items()})
    for task in tasks.values():
        task.splits = {name: tokenise(rows, name, tokenizer, task.info, run) for name, rows in task.splits.items()}
    set_seed(args.seed)  # the heads are drawn here
    settings = {name: get_task(task.info.task).model_settings(task.info) for name, task in tasks.items()}
    load = partial(_load_model, run=run, tasks=settings)
    model = load_pretrained(load, source, run.model)
    check_fit(model, tokenizer, run.max_length)
    args = divide_batches(_arguments(args, options, output_dir), run)
    block = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    trainer = GuardedTrainer(
        model,
        args,
        train_dataset=MultiTaskRows(
            {name: task.splits["train"] for name, task in tasks.items()},
            model.config.tasks,
            block,
            sampling=options.multitask_sampling,
            seed=args.seed if args.data_seed is None else args.data_seed,
        ),
        processing_class=tokenizer,
        data_collator=make_collator(run, tokenizer),
    )
    return MultiTaskTraining(run, args, options, source, tasks, trainer)


def _load(run: RunArguments, dataset: str) -> Task:
    """A task's rows; columns and task type that were named belong to the run's own data set."""
    own = (
        run
        if dataset == run.dataset
        else dataclasses.replace(
            run, dataset=dataset, task=None, text_column=None, text_pair_column=None, label_column=None
        )
    )
    splits, info, notes = load_splits(own)
    return Task(info, splits, notes)


def _without_held_out_texts(tasks: dict[str, Task]) -> dict[str, Task]:
    """No task trains on texts that another one is evaluated on."""
    held_out = {
        name: {key for split, rows in task.splits.items() if split != "train" for key in _keys(rows, task.info)}
        for name, task in tasks.items()
    }
    for name, task in tasks.items():
        others = set().union(*(keys for other, keys in held_out.items() if other != name))
        rows = task.splits["train"]
        kept = [index for index, key in enumerate(_keys(rows, task.info)) if key not in others]
        if len(kept) < len(rows):
            task.notes.append(
                f"{len(rows) - len(kept):,} training rows that another task is evaluated on were left out"
            )
            task.splits["train"] = rows.select(kept)
    return tasks


def _keys(rows: Dataset, info: DatasetInfo) -> list[tuple[str, ...]]:
    return [tuple(map(text_key, texts)) for texts in zip(*(rows[column] for column in info.text_columns), strict=True)]


def _load_model(path: str, run: RunArguments, tasks: Mapping[str, dict[str, Any]]) -> MultiTaskClassifier:
    """In float32, as `fine_tuning` does."""
    heads = {}
    for name, settings in tasks.items():
        size = {key: settings[key] for key in ("id2label",) if key in settings} or {
            "num_labels": settings["num_labels"]
        }
        heads[name] = {**size, "problem_type": settings["problem_type"]}
    settings = run.classifier_settings() | {"trust_remote_code": run.trust_remote_code}
    return MultiTaskClassifier.from_encoder(path, tasks=heads, **settings).float()


def _arguments(
    args: StrategyTrainingArguments, options: MultiTaskArguments, output_dir: Path
) -> StrategyTrainingArguments:
    """Those of the run, without the strategies that are for its own fine-tuning."""
    own = StrategyTrainingArguments.__annotations__
    off = {
        field.name: field.default for field in dataclasses.fields(args) if field.name in own and field.name not in _KEPT
    }
    return dataclasses.replace(
        args,
        **off,
        output_dir=str(output_dir),
        learning_rate=options.multitask_learning_rate,
        num_train_epochs=options.multitask_epochs,
        max_steps=options.multitask_steps or -1,
        eval_strategy="no",
        save_strategy="epoch" if options.multitask_steps is None else "steps",
        save_steps=max(1, (options.multitask_steps or 0) // 5),
        load_best_model_at_end=False,
        metric_for_best_model=None,
        train_sampling_strategy="sequential",  # the rows come in their order
        label_names=["labels"],
        ddp_find_unused_parameters=True,  # idle heads
    )
