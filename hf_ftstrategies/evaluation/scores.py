"""How good predictions are, as numbers, and the Trainer's `compute_metrics`.

The functions take plain sequences or arrays and return plain floats, which fit into JSON. The same numbers as
`evaluate.Metric` classes are in `metrics.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

if TYPE_CHECKING:
    from transformers import EvalPrediction


def accuracy(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Share of examples whose predicted label is the true one.

    Args:
        predictions (`Sequence[int]`): predicted label ids, shape `(examples,)`.
        references (`Sequence[int]`): true label ids, same shape.

    Raises:
        ValueError: no examples, different lengths, or labels that are not integers.
    """
    predictions, references = _label_ids(predictions, references)
    return float(np.mean(predictions == references))


def macro_f1(predictions: Sequence[int], references: Sequence[int], num_labels: int | None = None) -> float:
    """Mean over the classes of F1 = 2 TP / (2 TP + FP + FN), every class with the same weight.

    A class that is neither predicted nor present has 0 / 0; its F1 is defined as 0 and it stays in the mean.

    Args:
        predictions (`Sequence[int]`): predicted label ids, shape `(examples,)`.
        references (`Sequence[int]`): true label ids, same shape.
        num_labels (`int`, *optional*): the classes are 0 ... `num_labels - 1`, all labels of the data set.
            Without it they are those that occur in predictions or references.

    Raises:
        ValueError: as `accuracy`, or a label outside the classes.
    """
    predictions, references = _label_ids(predictions, references, num_labels)
    classes = None if num_labels is None else range(num_labels)
    return float(sklearn_metrics.f1_score(references, predictions, labels=classes, average="macro", zero_division=0))


def per_class_scores(
    predictions: Sequence[int], references: Sequence[int], label_names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision TP / (TP + FP), recall TP / (TP + FN), F1 and support (true examples) of every class.

    A score whose denominator is 0 (class never predicted, never present) is defined as 0.

    Args:
        predictions (`Sequence[int]`): predicted label ids, shape `(examples,)`.
        references (`Sequence[int]`): true label ids, same shape.
        label_names (`Sequence[str]`): name of label id 0, 1, ...

    Returns:
        `{name: {"precision": float, "recall": float, "f1": float, "support": int}}`, ordered as the names.

    Raises:
        ValueError: as `accuracy`, a label without a name, or two labels with the same name.
    """
    if len(set(label_names)) < len(label_names):
        raise ValueError(f"Label names must differ from each other, got {list(label_names)}.")
    predictions, references = _label_ids(predictions, references, len(label_names))
    columns = sklearn_metrics.precision_recall_fscore_support(
        references, predictions, labels=range(len(label_names)), zero_division=0
    )
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
        for name, p, r, f, n in zip(label_names, *columns, strict=True)
    }


def matthews_correlation(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Matthews correlation of any number of classes: 1 for all right, 0 for no better than chance.

    With s examples, c of them right, t_k true and p_k predicted examples of class k:

        R_K = (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))

    For two classes this is Matthews' phi, down to -1; with more classes the minimum lies above -1. If all
    predictions or all references are one class, the denominator is 0 and the correlation is defined as 0.0: a
    constant carries no information about the labels.

    Args:
        predictions (`Sequence[int]`): predicted label ids, shape `(examples,)`.
        references (`Sequence[int]`): true label ids, same shape.

    Raises:
        ValueError: as `accuracy`.

    Paper: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient".
    """
    predictions, references = _label_ids(predictions, references)
    if _constant(predictions) or _constant(references):
        return 0.0
    return float(sklearn_metrics.matthews_corrcoef(references, predictions))


def f1(predictions: Sequence[int], references: Sequence[int]) -> float:
    """F1 of label 1 in a binary task (GLUE's MRPC and QQP); 0 when label 1 is neither predicted nor present.

    Args:
        predictions (`Sequence[int]`): predicted label ids, 0 or 1, shape `(examples,)`.
        references (`Sequence[int]`): true label ids, same shape.

    Raises:
        ValueError: as `accuracy`, or a label other than 0 and 1.
    """
    predictions, references = _label_ids(predictions, references, num_labels=2)
    return float(sklearn_metrics.f1_score(references, predictions, zero_division=0))


def multilabel_f1(
    predictions: Sequence[Sequence[int]], references: Sequence[Sequence[int]], average: str = "micro"
) -> float:
    """F1 where an example can have several labels, each given as 0 or 1.

    Args:
        predictions (`Sequence[Sequence[int]]`): predicted indicators, shape `(examples, labels)`.
        references (`Sequence[Sequence[int]]`): true indicators, same shape.
        average (`str`, defaults to `"micro"`): `"micro"` counts over all labels at once, `"macro"` takes the
            mean of the labels' F1. 0 / 0 is defined as 0.

    Raises:
        ValueError: no examples, different shapes, a value other than 0 and 1, or an unknown average.
    """
    if average not in ("micro", "macro"):
        raise ValueError(f'average must be "micro" or "macro", got {average!r}.')
    predictions, references = np.asarray(predictions), np.asarray(references)
    if predictions.shape != references.shape or predictions.ndim != 2 or predictions.size == 0:
        raise ValueError(
            "Multi-label predictions and references must both have the shape (examples, labels), "
            f"got {predictions.shape} and {references.shape}."
        )
    if not (np.isin(predictions, (0, 1)).all() and np.isin(references, (0, 1)).all()):
        raise ValueError("Multi-label predictions and references must be 0 or 1.")
    if average == "micro":
        return f1(predictions.ravel().astype(int), references.ravel().astype(int))
    columns = zip(predictions.T.astype(int), references.T.astype(int), strict=True)
    return float(np.mean([f1(predicted, true) for predicted, true in columns]))


def pearson(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Linear correlation of two series of numbers; 0.0 when one of them is constant.

    Args:
        predictions (`Sequence[float]`): predicted values, shape `(examples,)`.
        references (`Sequence[float]`): true values, same shape.

    Raises:
        ValueError: no examples, different lengths, or values that are not finite.
    """
    return _correlation(stats.pearsonr, predictions, references)


def spearman(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Pearson's correlation of the ranks (ties share their mean rank); 0.0 when one series is constant.

    Args:
        predictions (`Sequence[float]`): predicted values, shape `(examples,)`.
        references (`Sequence[float]`): true values, same shape.

    Raises:
        ValueError: as `pearson`.
    """
    return _correlation(stats.spearmanr, predictions, references)


def compute_metrics_for(
    task_metrics: Sequence[str], label_names: Sequence[str]
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Make the `compute_metrics` function of a `Trainer`.

    Logits become predictions as each metric needs them: the largest one (`accuracy`, `macro_f1`,
    `matthews_correlation`, `f1`), every one above 0, a probability above 1/2 (`multilabel_micro_f1`,
    `multilabel_macro_f1`), or the value itself (`pearson`, `spearman`).

    Args:
        task_metrics (`Sequence[str]`): names from the list above.
        label_names (`Sequence[str]`): all labels of the data set; `macro_f1` is the mean over these.

    Returns:
        A function from `EvalPrediction` to `{name: value}`. If the model returns more than logits, the first
        output counts.

    Raises:
        ValueError: a name that is not in the list; the nearest one is suggested.
    """
    scores = {
        "accuracy": (_largest, accuracy),
        "macro_f1": (_largest, partial(macro_f1, num_labels=len(label_names))),
        "matthews_correlation": (_largest, matthews_correlation),
        "f1": (_largest, f1),
        "multilabel_micro_f1": (_above_half, partial(multilabel_f1, average="micro")),
        "multilabel_macro_f1": (_above_half, partial(multilabel_f1, average="macro")),
        "pearson": (np.ravel, pearson),
        "spearman": (np.ravel, spearman),
    }
    for name in task_metrics:
        if name not in scores:
            nearest = difflib.get_close_matches(name, scores, n=1, cutoff=0.0)[0]
            raise ValueError(f"Unknown metric {name!r}. Did you mean {nearest!r}? Known: {', '.join(scores)}.")
    chosen = {name: scores[name] for name in task_metrics}

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        outputs = prediction.predictions
        logits = np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)
        return {name: score(decode(logits), prediction.label_ids) for name, (decode, score) in chosen.items()}

    return compute_metrics


def _largest(logits: np.ndarray) -> np.ndarray:
    return logits.argmax(axis=-1)


def _above_half(logits: np.ndarray) -> np.ndarray:
    return logits > 0


def _label_ids(predictions, references, num_labels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    pair = np.asarray(predictions), np.asarray(references)
    _check_shapes(*pair)
    for name, labels in zip(("predictions", "references"), pair, strict=True):
        if labels.dtype.kind not in "iub":
            raise ValueError(f"The {name} must be integer label ids, got {labels.dtype}.")
        if num_labels is not None and (labels.min() < 0 or labels.max() >= num_labels):
            raise ValueError(
                f"The {name} must be label ids from 0 to {num_labels - 1}, got {labels.min()} ... {labels.max()}."
            )
    return pair


def _correlation(function, predictions, references) -> float:
    predictions = np.asarray(predictions, dtype=np.float64)
    references = np.asarray(references, dtype=np.float64)
    _check_shapes(predictions, references)
    if not (np.isfinite(predictions).all() and np.isfinite(references).all()):
        raise ValueError("Predictions and references must be finite numbers.")
    if _constant(predictions) or _constant(references):
        return 0.0
    return float(function(predictions, references).statistic)


def _check_shapes(predictions: np.ndarray, references: np.ndarray) -> None:
    if predictions.shape != references.shape or predictions.ndim != 1 or predictions.size == 0:
        raise ValueError(
            "Predictions and references must be two non-empty series of the same length, "
            f"got shapes {predictions.shape} and {references.shape}."
        )


def _constant(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())
