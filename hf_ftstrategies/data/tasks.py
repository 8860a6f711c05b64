"""Task types: what a data set needs to become a fine-tuning problem.

A task type names the columns, turns a batch into features, tells the model class and its label settings, the
metrics and which of them selects a checkpoint, and what a model that learnt nothing would answer. Pipeline
and data sources know nothing else about a task, so a new one (tagging, question answering) is one more entry
of `TASKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_ftstrategies.data.truncation import encode_batch
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hf_ftstrategies.data.info import DatasetInfo

ONE_TEXT = ("text",)
TWO_TEXTS = ("sentence1", "sentence2")


@dataclass(frozen=True)
class TaskType:
    """One kind of fine-tuning problem.

    Args:
        name (`str`): Name in `TASKS`.
        text_columns (`tuple[tuple[str, ...], ...]`): The sets of text columns it can work on.
        label_kind (`str`): What a row's `label` is: `"class"` (an index), `"number"` or `"classes"` (0 or 1
            for each label name).
        auto_class (`str`): Name of the Transformers class that loads a model for it.
        metrics (`tuple[str, ...]`): Names of the metrics to report; the first selects the best checkpoint.
            Greater is better for all of them.
        features (`Callable`): `features(batch, tokenizer, info, max_length=..., strategy=..., head=...)`
            makes model inputs from a batch of rows, for `datasets.map(batched=True)`.
        model_settings (`Callable`): `model_settings(info)` gives the keyword arguments that fit the model's
            head to the labels.
        baseline (`Callable`): `baseline(train_labels, count)` gives the outputs, shape `(count, outputs)`, of
            a model that always answers with the most frequent training label.
    """

    name: str
    text_columns: tuple[tuple[str, ...], ...]
    label_kind: str
    auto_class: str
    metrics: tuple[str, ...]
    features: Callable[..., dict[str, list]]
    model_settings: Callable[[DatasetInfo], dict[str, Any]]
    baseline: Callable[[Sequence, int], np.ndarray]

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best checkpoint."""
        return self.metrics[0]

    def load_model(self, model: str, info: DatasetInfo, **options: Any) -> Any:
        """Load a pre-trained model with a new head for this data set.

        Args:
            model (`str`): Hub id or folder.
            info (`DatasetInfo`): The data set.
            **options: Further arguments of `from_pretrained`.
        """
        import transformers

        return getattr(transformers, self.auto_class).from_pretrained(model, **self.model_settings(info), **options)


def get_task(name: str) -> TaskType:
    """Look a task type up by its name.

    Args:
        name (`str`): `"single_text"`, `"text_pair"`, `"regression"` or `"multi_label"`.

    Raises:
        ValueError: Unknown name; the nearest one is suggested.
    """
    if name not in TASKS:
        raise ValueError(f"Unknown task type {name!r}.{did_you_mean(name, TASKS)} Known: {', '.join(TASKS)}.")
    return TASKS[name]


def text_features(
    batch: Mapping[str, Sequence],
    tokenizer: PreTrainedTokenizerBase,
    info: DatasetInfo,
    *,
    max_length: int = 512,
    strategy: str = "head_tail",
    head: int | float = 128,
) -> dict[str, list]:
    """Make model inputs from one or two text columns, with `labels` where the batch has them.

    Args:
        batch (`Mapping[str, Sequence]`): Columns of the data set.
        tokenizer (`PreTrainedTokenizerBase`): The model's tokenizer.
        info (`DatasetInfo`): Names the text and label columns.
        max_length (`int`, *optional*, defaults to 512): As in `encode_batch`.
        strategy (`str`, *optional*, defaults to `"head_tail"`): As in `truncate`.
        head (`int` or `float`, *optional*, defaults to 128): As in `truncate`.

    Returns:
        `dict[str, list]`: The columns of `encode_batch`, and `labels`.
    """
    texts = [batch[column] for column in info.text_columns]
    features = encode_batch(tokenizer, *texts, max_length=max_length, strategy=strategy, head=head)
    if info.label_column in batch:
        features["labels"] = list(batch[info.label_column])
    return features


def _named_labels(info: DatasetInfo, problem_type: str) -> dict[str, Any]:
    names = list(info.label_names)
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        "problem_type": problem_type,
    }


def _one_class(info: DatasetInfo) -> dict[str, Any]:
    return _named_labels(info, "single_label_classification")


def _many_classes(info: DatasetInfo) -> dict[str, Any]:
    return _named_labels(info, "multi_label_classification")


def _one_number(info: DatasetInfo) -> dict[str, Any]:
    return {"num_labels": 1, "problem_type": "regression"}


def _most_frequent_class(train_labels: Sequence[int], count: int) -> np.ndarray:
    frequency = np.bincount(np.asarray(train_labels))
    return np.tile(frequency == frequency.max(), (count, 1)).astype(np.float32)


def _mean_number(train_labels: Sequence[float], count: int) -> np.ndarray:
    return np.full((count, 1), np.mean(train_labels), dtype=np.float32)


def _most_frequent_of_each(train_labels: Sequence[Sequence[float]], count: int) -> np.ndarray:
    frequent = np.mean(train_labels, axis=0) > 0.5
    return np.tile(np.where(frequent, 1.0, -1.0), (count, 1)).astype(np.float32)


def _classification(name: str, text_columns: tuple[str, ...]) -> TaskType:
    return TaskType(
        name=name,
        text_columns=(text_columns,),
        label_kind="class",
        auto_class="AutoModelForSequenceClassification",
        metrics=("accuracy", "macro_f1", "matthews_correlation"),
        features=text_features,
        model_settings=_one_class,
        baseline=_most_frequent_class,
    )


TASKS: dict[str, TaskType] = {
    task.name: task
    for task in (
        _classification("single_text", ONE_TEXT),
        _classification("text_pair", TWO_TEXTS),
        TaskType(
            name="regression",
            text_columns=(ONE_TEXT, TWO_TEXTS),
            label_kind="number",
            auto_class="AutoModelForSequenceClassification",
            metrics=("spearman", "pearson"),
            features=text_features,
            model_settings=_one_number,
            baseline=_mean_number,
        ),
        TaskType(
            name="multi_label",
            text_columns=(ONE_TEXT, TWO_TEXTS),
            label_kind="classes",
            auto_class="AutoModelForSequenceClassification",
            metrics=("multilabel_micro_f1", "multilabel_macro_f1"),
            features=text_features,
            model_settings=_many_classes,
            baseline=_most_frequent_of_each,
        ),
    )
}
