"""The fine-tuning stage: from names to a trained, evaluated, saved model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import AutoTokenizer, DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import EvalPrediction

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.data.checks import leakage
from hf_ftstrategies.data.chunking import ChunkCollator, describe_reading, encode_chunks
from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.sources import load_dataset_splits
from hf_ftstrategies.data.splits import make_splits
from hf_ftstrategies.data.streaming import Seen, TrainStream, load_streamed_splits
from hf_ftstrategies.data.tasks import get_task
from hf_ftstrategies.evaluation.scores import compute_metrics_for, per_class_scores
from hf_ftstrategies.modeling.as_trained import keep_reading
from hf_ftstrategies.modeling.classifier import EncoderClassifier
from hf_ftstrategies.modeling.features import collate_features, compute_features
from hf_ftstrategies.modeling.loading import check_fit, explain_load_error
from hf_ftstrategies.modeling.packaged import PretrainedSource, find_pretrained
from hf_ftstrategies.pipeline.arguments import RunArguments, divide_batch
from hf_ftstrategies.pipeline.interruptions import GuardedTrainer
from hf_ftstrategies.pipeline.machine import hardware, peak_memory_mib, versions
from hf_ftstrategies.pipeline.output import checkpoint_to_resume
from hf_ftstrategies.pipeline.progress import hush_transformers
from hf_ftstrategies.pipeline.training import train_stage
from hf_ftstrategies.strategies import SelfEnsemble
from hf_ftstrategies.strategies.state_files import JSON_NAME, read_json
from hf_ftstrategies.suggest import did_you_mean
from hf_ftstrategies.trainer import StrategyTrainer

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass
class FineTuning:
    """A prepared fine-tuning: data read and tokenised, model loaded, trainer built, nothing trained.

    Args:
        run (`RunArguments`), args (`StrategyTrainingArguments`): As given.
        source (`PretrainedSource`): Of the model.
        info (`DatasetInfo`): Of the data set.
        splits (`dict[str, Dataset]`): Tokenised; train may be a `TrainStream`.
        notes (`list[str]`): What a reader of the results should know about the data.
        trainer (`StrategyTrainer`): Ready to train.
        features (`dict[str, Dataset]`, *optional*): What the trainer reads instead of the splits, once it trains
            `feature_based`.
    """

    run: RunArguments
    args: StrategyTrainingArguments
    source: PretrainedSource
    info: DatasetInfo
    splits: dict[str, Dataset]
    notes: list[str]
    trainer: StrategyTrainer
    features: dict[str, Dataset] = field(default_factory=dict)

    def train(self, title: str = "fine-tuning") -> float:
        """Train, or go on from the last checkpoint. Returns the seconds it took; `title` stands beside the bar."""
        begin = time.perf_counter()
        if self.run.feature_based:
            self._use_features()
        checkpoint = checkpoint_to_resume(self.args)
        if checkpoint is not None and _stopped_early(checkpoint):
            self._load_best_of(checkpoint)
        else:
            train_stage(self.trainer, title)
        return time.perf_counter() - begin

    def _use_features(self) -> None:
        """Let the frozen encoder run over all splits, and the trainer read what it made of them."""
        trainer, size = self.trainer, self.args.per_device_eval_batch_size
        with self.args.main_process_first():  # the other processes find the result in the cache
            self.features = {
                name: compute_features(trainer.model, rows, trainer.data_collator, batch_size=size)
                for name, rows in self.splits.items()
            }
        trainer.train_dataset, trainer.eval_dataset = self.features["train"], self.features["validation"]
        trainer.data_collator = collate_features
        trainer.args.remove_unused_columns = False  # Trainer groups by the column of lengths only where it is left

    def _load_best_of(self, checkpoint: str) -> None:
        """Killed between the early stop and the end of the run: only the best weights are wanted."""
        state = type(self.trainer.state).load_from_json(str(Path(checkpoint, "trainer_state.json")))
        self.trainer.state = state
        self.trainer._load_best_model()

    def save_model(self, folder: str | Path) -> None:
        """Write the model and its tokenizer, as any Transformers model, and how texts were read."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        save_with_reading(model, self.trainer.processing_class, self._reading(), folder)

    def _reading(self) -> dict[str, Any]:
        return reading_of(self.run, self.trainer.processing_class, pairs=len(self.info.text_columns) > 1)

    def evaluate(self) -> dict[str, Any]:
        """Metrics of every split but train, the confusion matrix of the last, and the majority baseline."""
        facts: dict[str, Any] = {"metrics": {}}
        names = list(self.info.label_names)
        for split in [name for name in ("validation", "test") if name in self.splits]:
            output = self.trainer.predict(self.features.get(split, self.splits[split]), metric_key_prefix=split)
            found = {m: output.metrics[f"{split}_{m}"] for m in ("loss", *self.info.metrics)}
            logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
            if get_task(self.info.task).label_kind == "class":
                guesses = np.asarray(logits).argmax(-1)
                found["per_class"] = per_class_scores(guesses, output.label_ids, names)
                facts["confusion_matrix"] = _confusion(guesses, output.label_ids, len(names))
            facts["metrics"][split] = found
            facts["baseline"] = self._baseline(output.label_ids)
        return facts

    def _baseline(self, references: np.ndarray) -> dict[str, float]:
        """What always giving the most frequent training label (or the mean) would get."""
        outputs = get_task(self.info.task).baseline(self._rows("train")["labels"], len(references))
        score = compute_metrics_for(self.info.metrics, self.info.label_names)
        return score(EvalPrediction(predictions=outputs, label_ids=references))

    def _rows(self, split: str) -> Dataset | Seen:
        """A split, or of a stream what the training has seen of it."""
        rows = self.splits[split]
        return rows.look(self._examples()) if isinstance(rows, TrainStream) else rows

    def _examples(self) -> int:
        return self.trainer.state.global_step * self.trainer.get_total_train_batch_size(self.args)

    def _notes(self) -> list[str]:
        train, notes = self.splits["train"], list(self.notes)
        if isinstance(train, TrainStream):
            notes += train.notes(self._examples())
        if self.run.feature_based:
            notes.append(f"feature-based: the encoder stayed frozen, the head ({self.run.head}) trained on its output")
        return notes

    def facts(self) -> dict[str, Any]:
        """What there is to know about the run besides its metrics."""
        state = self.trainer.state
        splits = {name: self._rows(name) for name in self.splits}
        ensemble = next((s for s in self.trainer.strategies if isinstance(s, SelfEnsemble)), None)
        return {
            "dataset": {
                "name": self.info.name,
                **self.info.published_as(),
                "labels": list(self.info.label_names),
                "splits": {name: len(rows) for name, rows in splits.items()},
                "truncated_share": {name: float(np.mean(rows["truncated"])) for name, rows in splits.items()},
                "metric": self.info.metric,
                "notes": self._notes(),
            },
            "model": self.source.hub_id,
            "has_code": self.trainer.accelerator.unwrap_model(self.trainer.model).is_remote_code(),
            "feature_based": self.run.feature_based,
            "reading": self._reading(),
            "seed": self.args.seed,
            "history": state.log_history,
            "selected": {
                "step": state.best_global_step or state.global_step,
                "metric": self.args.metric_for_best_model.removeprefix("eval_"),
                "value": state.best_metric,
                **({"weights": ensemble.final_weights} if ensemble else {}),
            },
            "peak_memory_mib": peak_memory_mib(self.args.device),
            "versions": versions(),
            "hardware": hardware(self.args.device, self.args.world_size),
        }


def reading_of(run: RunArguments, tokenizer: PreTrainedTokenizerBase, pairs: bool = False) -> dict[str, Any]:
    """How a run makes model inputs of texts, as `keep_reading` takes it."""
    chunks = {"stride": run.chunk_stride, "max_chunks": run.max_chunks} if run.chunk_pooling != "none" else {}
    settings = {"max_length": run.max_length, "strategy": run.truncation, "head": run.truncation_head}
    reading = describe_reading(tokenizer, **settings, chunked=bool(chunks), **chunks)
    return reading | ({"pairs": True} if pairs else {})


def save_with_reading(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reading: dict[str, Any], folder: str | Path
) -> None:
    """Write a model and its tokenizer, with the pipeline that reads texts as the training did."""
    keep_reading(model, tokenizer, reading, folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_splits(
    run: RunArguments, shuffle_seed: int = 0
) -> tuple[dict[str, Dataset | TrainStream], DatasetInfo, list[str]]:
    """The splits of a run in the columns of its task, what the data set is, and notes on how they were cut.

    Args:
        run (`RunArguments`): Names the data and the splits.
        shuffle_seed (`int`, *optional*, defaults to 0): Of the order of a stream.
    """
    names = ("data_root", "task", "text_column", "text_pair_column", "label_column", "on_bad_rows")
    choices = {name: getattr(run, name) for name in names}
    rows = {name: getattr(run, name) for name in ("train_rows", "validation_rows", "test_rows")}
    if run.streaming:
        splits, info, notes = load_streamed_splits(
            run.dataset, **choices, **rows, seed=run.split_seed, shuffle_seed=shuffle_seed
        )
        return splits, info, [*notes, *info.findings]
    dataset, info = load_dataset_splits(run.dataset, **choices)
    splits, notes = make_splits(dataset, info, **rows, seed=run.split_seed, scheme=run.split_scheme)
    when = "before rows were selected, " if notes else ""
    findings = [when + finding for finding in info.findings]
    return splits, info, [*notes, leakage(splits, info.text_columns), *findings]


def prepare_fine_tuning(
    run: RunArguments, args: StrategyTrainingArguments, source: PretrainedSource | None = None
) -> FineTuning:
    """Everything up to the first training step; whatever is wrong with the input is said here.

    Args:
        run (`RunArguments`): Model, data, splits and features.
        args (`StrategyTrainingArguments`): Of the training; `output_dir` is where its checkpoints go.
        source (`PretrainedSource`, *optional*): Weights to start from instead of those of `run.model`.

    Raises:
        ValueError: before the model is loaded, where that is possible.
    """
    hush_transformers()
    run.check(args)
    source = source or find_pretrained(run.model)
    splits, info, notes = load_splits(run, shuffle_seed=args.seed if args.data_seed is None else args.data_seed)
    trusted = {"trust_remote_code": run.trust_remote_code}  # None would ask on a terminal
    tokenizer = load_pretrained(partial(AutoTokenizer.from_pretrained, **trusted), source, run.model)
    splits = {name: tokenise(rows, name, tokenizer, info, run) for name, rows in splits.items()}
    set_seed(args.seed)  # the new head is drawn here
    model = load_pretrained(lambda path: _load_model(path, run, info), source, run.model)
    check_fit(model, tokenizer, run.max_length)
    args = _for_task(args, run, info)
    trainer = GuardedTrainer(
        model,
        args,
        train_dataset=splits["train"],
        eval_dataset=splits["validation"],
        processing_class=tokenizer,
        data_collator=make_collator(run, tokenizer),
        compute_metrics=compute_metrics_for(info.metrics, info.label_names),
    )
    if run.streaming:
        splits["train"].length = args.max_steps * trainer.get_total_train_batch_size(args)
    return FineTuning(run, args, source, info, splits, notes, trainer)


def load_pretrained(load, source: PretrainedSource, name: str):
    """Call `load` on the path of a source; where nothing can be loaded from it, say so in one line."""
    try:
        return load(source.path)
    except Exception as error:  # of any kind, from torch, safetensors, tokenizers or code of the model's own
        raise ValueError(f"The model {name!r} cannot be loaded: {explain_load_error(error)}") from error


def _load_model(path: str, run: RunArguments, info: DatasetInfo):
    """In float32, whatever the checkpoint is stored in: updates are lost in half precision (`bf16` trains mixed)."""
    task, settings = get_task(info.task), run.classifier_settings()
    if not settings:
        return task.load_model(path, info, trust_remote_code=run.trust_remote_code).float()
    settings |= {"trust_remote_code": run.trust_remote_code, **task.model_settings(info)}
    model = EncoderClassifier.from_encoder(path, **settings).float()
    model.encoder.requires_grad_(not run.feature_based)
    return model


def make_collator(run: RunArguments, tokenizer: PreTrainedTokenizerBase):
    """What makes a batch of tokenised rows."""
    return (DataCollatorWithPadding if run.chunk_pooling == "none" else ChunkCollator)(tokenizer)


def tokenise(
    rows: Dataset | TrainStream, name: str, tokenizer: PreTrainedTokenizerBase, info: DatasetInfo, run: RunArguments
):
    """The rows of the split `name` as model inputs, as the run asks for them."""
    settings = {"max_length": run.max_length, "strategy": run.truncation, "head": run.truncation_head}
    features = get_task(info.task).features
    if run.chunk_pooling != "none":
        features = _chunk_features
        settings |= {"stride": run.chunk_stride, "max_chunks": run.max_chunks}
    settings |= {"tokenizer": tokenizer, "info": info}
    if isinstance(rows, TrainStream):
        rows.features = partial(features, **settings)
        return rows
    columns = rows.column_names
    return rows.map(features, batched=True, remove_columns=columns, desc=f"tokenise {name}", fn_kwargs=settings)


def _chunk_features(batch: dict[str, list], tokenizer: PreTrainedTokenizerBase, info: DatasetInfo, **settings):
    """Chunks of single texts, with their labels."""
    if len(info.text_columns) > 1:
        raise ValueError("chunk_pooling is for single texts; for pairs, truncation shortens both sides.")
    return {**encode_chunks(tokenizer, batch[info.text_columns[0]], **settings), "labels": batch[info.label_column]}


def divide_batches(args: StrategyTrainingArguments, run: RunArguments) -> StrategyTrainingArguments:
    """Make `global_batch_size` of batches that fit, and no use of what the device or a stream cannot do."""
    pin_memory = args.dataloader_pin_memory and args.device.type != "cpu"  # torch warns about it there
    args = replace(args, dataloader_pin_memory=pin_memory)
    if run.streaming:  # dispatching would join batches that are padded to different lengths
        args = replace(args, accelerator_config={**args.accelerator_config.to_dict(), "dispatch_batches": False})
    if run.global_batch_size is None:
        return args
    size, accumulation = divide_batch(run.global_batch_size, args.per_device_train_batch_size, args.world_size)
    return replace(args, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation)


def _for_task(args: StrategyTrainingArguments, run: RunArguments, info: DatasetInfo) -> StrategyTrainingArguments:
    """Select by the task's metric (of the average, where there is one), unless another was chosen.

    Trainer's own default is "loss", not "eval_loss".
    """
    args = divide_batches(args, run)
    chosen, known = args.metric_for_best_model, ["loss", *info.metrics]
    of_ensemble = "" if args.self_ensemble == "none" else "ensemble_"
    if chosen in (None, "loss"):
        return replace(args, metric_for_best_model=of_ensemble + info.metric, greater_is_better=True)
    if of_ensemble:
        known += [of_ensemble + name for name in known]
    if chosen.removeprefix("eval_") not in known:
        known_text = f"known here are {', '.join(known)}"
        raise ValueError(f"metric_for_best_model is {chosen!r}, {known_text}.{did_you_mean(chosen, known)}")
    return args


def _confusion(predictions: np.ndarray, references: np.ndarray, labels: int) -> list[list[int]]:
    matrix = np.zeros((labels, labels), dtype=int)
    np.add.at(matrix, (references, predictions), 1)
    return matrix.tolist()


def _stopped_early(checkpoint: str) -> bool:
    if not Path(checkpoint, JSON_NAME).is_file():
        return False
    return read_json(checkpoint)["states"].get("early_stopping", {}).get("stopped_at") is not None
