import itertools
import subprocess
import sys

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_ftstrategies.evaluation import metrics
from hf_ftstrategies.evaluation.metrics import compute_metrics_for

LABELS = ["business", "sport", "tech", "never"]


@pytest.fixture(params=range(5))
def labels(request):
    """References of three classes and predictions that are right about two times in three."""
    rng = np.random.default_rng(request.param)
    references = rng.integers(0, 3, 60)
    noise = rng.integers(0, 3, 60)
    return np.where(rng.random(60) < 0.5, references, noise), references


def counts(predictions, references, k):
    tp = sum(p == k and r == k for p, r in zip(predictions, references, strict=True))
    return tp, sum(p == k for p in predictions), sum(r == k for r in references)


def f1_of(predictions, references, k):
    tp, predicted, true = counts(predictions, references, k)
    return 2 * tp / (predicted + true) if predicted + true else 0.0


def test_accuracy_counts_hits(labels):
    predictions, references = labels
    hits = sum(p == r for p, r in zip(predictions, references, strict=True))
    assert metrics.accuracy(predictions, references) == hits / 60


@pytest.mark.parametrize("num_labels", [3, 4])
def test_macro_f1_is_the_mean_over_all_labels(labels, num_labels):
    expected = np.mean([f1_of(*labels, k) for k in range(num_labels)])
    assert metrics.macro_f1(*labels, num_labels=num_labels) == pytest.approx(expected, abs=1e-15)


def test_macro_f1_without_a_label_count_takes_labels_that_occur():
    assert metrics.macro_f1([0, 5], [0, 5]) == 1.0
    assert metrics.macro_f1([0, 5], [0, 5], num_labels=6) == pytest.approx(2 / 6)


def test_per_class_scores_are_ratios_of_counts(labels):
    scores = metrics.per_class_scores(*labels, LABELS)
    assert list(scores) == LABELS
    for k, name in enumerate(LABELS):
        tp, predicted, true = counts(*labels, k)
        assert scores[name] == pytest.approx(
            {
                "precision": tp / max(predicted, 1),
                "recall": tp / max(true, 1),
                "f1": f1_of(*labels, k),
                "support": true,
            }
        )


def test_matthews_is_the_correlation_of_one_hot_rows(labels):
    one_hot = [np.eye(3, dtype=np.float64)[series] for series in labels]
    x, y = (rows - rows.mean(axis=0) for rows in one_hot)
    expected = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    assert metrics.matthews_correlation(*labels) == pytest.approx(expected, abs=1e-14)


def test_matthews_of_two_classes_is_pearson():
    for predictions in itertools.product([0, 1], repeat=4):
        references = [0, 0, 1, 1]
        assert metrics.matthews_correlation(predictions, references) == pytest.approx(
            metrics.pearson(predictions, references)
        )


@pytest.mark.parametrize(("predictions", "references"), [([1, 1, 1], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([1], [1])])
def test_matthews_of_a_constant_is_zero(predictions, references):
    assert metrics.matthews_correlation(predictions, references) == 0.0


def test_f1_looks_at_label_one(labels):
    predictions, references = (series % 2 for series in labels)
    assert metrics.f1(predictions, references) == pytest.approx(f1_of(predictions, references, 1))
    assert metrics.f1([0, 0], [0, 0]) == 0.0


def test_multilabel_f1():
    predictions, references = [[1, 0], [1, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]]
    assert metrics.multilabel_f1(predictions, references, "micro") == pytest.approx(2 * 2 / (3 + 3))
    assert metrics.multilabel_f1(predictions, references, "macro") == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_correlations():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50))
    dx, dy = x - x.mean(), y - y.mean()
    assert metrics.pearson(x, y) == pytest.approx((dx @ dy) / np.sqrt((dx @ dx) * (dy @ dy)))
    ranks = [values.argsort().argsort() for values in (x, y)]
    assert metrics.spearman(x, y) == pytest.approx(metrics.pearson(*ranks))
    assert metrics.spearman(x, np.exp(x)) == pytest.approx(1.0)
    assert metrics.pearson([1, 1], [0, 3]) == metrics.spearman([0, 3], [1, 1]) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy([], []), "non-empty"),
        (lambda: metrics.accuracy([1, 0], [1]), "same length"),
        (lambda: metrics.accuracy([0.5], [1]), "integer label ids"),
        (lambda: metrics.accuracy([0], ["sport"]), "references must be integer"),
        (lambda: metrics.macro_f1([3], [0], num_labels=3), "from 0 to 2, got 3"),
        (lambda: metrics.per_class_scores([0], [-100], LABELS), "references must be label ids from 0"),
        (lambda: metrics.per_class_scores([0], [0], ["a", "a"]), "must differ"),
        (lambda: metrics.f1([2], [0]), "from 0 to 1"),
        (lambda: metrics.multilabel_f1([[1]], [[1, 0]]), "same|shape"),
        (lambda: metrics.multilabel_f1([[2]], [[1]]), "0 or 1"),
        (lambda: metrics.multilabel_f1([[1]], [[1]], "weighted"), "micro"),
        (lambda: metrics.pearson([float("nan")], [1.0]), "finite"),
        (lambda: compute_metrics_for(["acuracy"], LABELS), "Did you mean 'accuracy'"),
    ],
)
def test_bad_input_is_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_compute_metrics_decodes_logits():
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 1.0, 0.5]])
    compute = compute_metrics_for(["accuracy", "macro_f1", "matthews_correlation"], LABELS[:3])
    for outputs in (logits, (logits, "hidden states")):
        scores = compute(EvalPrediction(predictions=outputs, label_ids=np.array([0, 1, 2])))
        assert scores == pytest.approx(
            {
                "accuracy": 2 / 3,
                "macro_f1": (1 + 2 / 3 + 0) / 3,
                "matthews_correlation": metrics.matthews_correlation([0, 1, 1], [0, 1, 2]),
            }
        )
    several = compute_metrics_for(["multilabel_micro_f1", "multilabel_macro_f1"], LABELS[:3])
    assert several(EvalPrediction(logits - 1, (logits > 1).astype(np.float32))) == {
        "multilabel_micro_f1": 1.0,
        "multilabel_macro_f1": pytest.approx(2 / 3),
    }
    values = compute_metrics_for(["pearson", "spearman"], [])
    assert values(EvalPrediction(np.array([[1.0], [2.0]]), np.array([0.1, 0.4]))) == pytest.approx(
        {"pearson": 1.0, "spearman": 1.0}
    )


def test_metric_classes_give_the_same_numbers_without_a_hub(labels):
    import evaluate

    predictions, references = labels
    several = evaluate.combine(
        [
            metrics.Accuracy(keep_in_memory=True),
            metrics.MacroF1(num_labels=4, keep_in_memory=True),
            metrics.MatthewsCorrelation(keep_in_memory=True),
            metrics.PerClassScores(LABELS, keep_in_memory=True),
        ]
    )
    assert several.compute(predictions=predictions, references=references) == {
        "accuracy": metrics.accuracy(predictions, references),
        "macro_f1": metrics.macro_f1(predictions, references, 4),
        "matthews_correlation": metrics.matthews_correlation(predictions, references),
        "per_class": metrics.per_class_scores(predictions, references, LABELS),
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
    import evaluate

    metric = getattr(metrics, name)(keep_in_memory=True)
    assert isinstance(metric, evaluate.Metric)
    assert metric.compute(predictions=predictions, references=references) == pytest.approx(expected)


def test_metrics_add_up_over_batches(tmp_path):
    metric = metrics.Accuracy(cache_dir=str(tmp_path))
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add(prediction=1, reference=1)
    assert metric.compute() == {"accuracy": pytest.approx(2 / 3)}


def test_importing_the_module_leaves_evaluate_alone():
    code = "import sys, hf_ftstrategies.evaluation.metrics; sys.exit('evaluate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Bleu'"):
        metrics.Bleu  # noqa: B018
