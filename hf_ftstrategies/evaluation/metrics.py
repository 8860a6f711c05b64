"""The metrics as `evaluate.Metric` subclasses, for `evaluate.combine`, evaluators and existing scripts.

Nothing is fetched: an instance works offline, where `evaluate.load("accuracy")` does not.

    >>> Accuracy().compute(predictions=[0, 1, 1], references=[0, 1, 0])
    {'accuracy': 0.6666666666666666}

Every class takes the arguments of `evaluate.Metric` (`keep_in_memory`, `cache_dir`, `experiment_id`, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

import datasets
import evaluate

from hf_ftstrategies.evaluation import scores


class _OfflineMetric(evaluate.Metric):
    """One input pair of the type `feature`; the class docstring is the description."""

    feature = datasets.Value("int64")

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            features=datasets.Features({"predictions": self.feature, "references": self.feature}),
        )


class Accuracy(_OfflineMetric):
    """Share of right labels, as `{"accuracy": float}`. See `scores.accuracy`."""

    def _compute(self, predictions, references):
        return {"accuracy": scores.accuracy(predictions, references)}


class MacroF1(_OfflineMetric):
    """Mean F1 of the classes, as `{"macro_f1": float}`. See `scores.macro_f1`.

    Args:
        num_labels (`int`, *optional*): all labels of the data set; without it those that occur.
    """

    def __init__(self, num_labels: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.num_labels = num_labels

    def _compute(self, predictions, references):
        return {"macro_f1": scores.macro_f1(predictions, references, self.num_labels)}


class PerClassScores(_OfflineMetric):
    """Precision, recall, F1 and support by label name, as `{"per_class": {name: {...}}}`.

    See `scores.per_class_scores`.

    Args:
        label_names (`Sequence[str]`): name of label id 0, 1, ...
    """

    def __init__(self, label_names: Sequence[str], **kwargs):
        super().__init__(**kwargs)
        self.label_names = list(label_names)

    def _compute(self, predictions, references):
        return {"per_class": scores.per_class_scores(predictions, references, self.label_names)}


class MatthewsCorrelation(_OfflineMetric):
    """Gorodkin's R_K, as `{"matthews_correlation": float}`. See `scores.matthews_correlation`."""

    def _compute(self, predictions, references):
        return {"matthews_correlation": scores.matthews_correlation(predictions, references)}


class F1(_OfflineMetric):
    """F1 of label 1 in a binary task, as `{"f1": float}`. See `scores.f1`."""

    def _compute(self, predictions, references):
        return {"f1": scores.f1(predictions, references)}


class MultilabelF1(_OfflineMetric):
    """F1 of indicator rows, as `{"multilabel_micro_f1": float, "multilabel_macro_f1": float}`.

    See `scores.multilabel_f1`.
    """

    feature = datasets.Sequence(datasets.Value("int64"))

    def _compute(self, predictions, references):
        return {
            f"multilabel_{average}_f1": scores.multilabel_f1(predictions, references, average)
            for average in ("micro", "macro")
        }


class Pearson(_OfflineMetric):
    """Linear correlation, as `{"pearson": float}`. See `scores.pearson`."""

    feature = datasets.Value("float64")

    def _compute(self, predictions, references):
        return {"pearson": scores.pearson(predictions, references)}


class Spearman(_OfflineMetric):
    """Rank correlation, as `{"spearman": float}`. See `scores.spearman`."""

    feature = datasets.Value("float64")

    def _compute(self, predictions, references):
        return {"spearman": scores.spearman(predictions, references)}
