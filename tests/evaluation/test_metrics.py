import evaluate
import numpy as np
import pytest

from hf_ftstrategies.evaluation import metrics, scores

LABELS = ["a", "b", "c", "d"]


def test_metric_classes_give_the_same_numbers_without_a_hub():
    predictions, references = np.random.default_rng(0).integers(0, 3, (2, 60))
    several = evaluate.combine(
        [
            metrics.Accuracy(keep_in_memory=True),
            metrics.MacroF1(num_labels=4, keep_in_memory=True),
            metrics.MatthewsCorrelation(keep_in_memory=True),
            metrics.PerClassScores(LABELS, keep_in_memory=True),
        ]
    )
    assert several.compute(predictions=predictions, references=references) == {
        "accuracy": scores.accuracy(predictions, references),
        "macro_f1": scores.macro_f1(predictions, references, 4),
        "matthews_correlation": scores.matthews_correlation(predictions, references),
        "per_class": scores.per_class_scores(predictions, references, LABELS),
    }


@pytest.mark.parametrize(
    ("name", "predictions", "references", "expected"),
    [
        ("F1", [0, 1, 1], [0, 1, 0], {"f1": 2 / 3}),
        ("Pearson", [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], {"pearson": 1.0}),
        ("Spearman", [0.0, 1.0, 5.0], [1.0, 2.0, 3.0], {"spearman": 1.0}),
        (
            "MultilabelF1",
            [[1, 0], [1, 1]],
            [[1, 0], [0, 1]],
            {"multilabel_micro_f1": 0.8, "multilabel_macro_f1": 5 / 6},
        ),
    ],
)
def test_other_metric_classes(name, predictions, references, expected):
    metric = getattr(metrics, name)(keep_in_memory=True)
    assert isinstance(metric, evaluate.Metric)
    assert metric.compute(predictions=predictions, references=references) == pytest.approx(expected)


def test_metrics_add_up_over_batches(tmp_path):
    metric = metrics.Accuracy(cache_dir=str(tmp_path))
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add(prediction=1, reference=1)
    assert metric.compute() == {"accuracy": pytest.approx(2 / 3)}
