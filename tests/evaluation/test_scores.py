import itertools
import subprocess
import sys

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_ftstrategies.evaluation import scores
from hf_ftstrategies.evaluation.scores import compute_metrics_for

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
    assert scores.accuracy(predictions, references) == hits / 60


@pytest.mark.parametrize("num_labels", [3, 4])
def test_macro_f1_is_the_mean_over_all_labels(labels, num_labels):
    expected = np.mean([f1_of(*labels, k) for k in range(num_labels)])
    assert scores.macro_f1(*labels, num_labels=num_labels) == pytest.approx(expected, abs=1e-15)


def test_macro_f1_without_a_label_count_takes_labels_that_occur():
    assert scores.macro_f1([0, 5], [0, 5]) == 1.0
    assert scores.macro_f1([0, 5], [0, 5], num_labels=6) == pytest.approx(2 / 6)


def test_per_class_scores_are_ratios_of_counts(labels):
    table = scores.per_class_scores(*labels, LABELS)
    assert list(table) == LABELS
    for k, name in enumerate(LABELS):
        tp, predicted, true = counts(*labels, k)
        assert table[name] == pytest.approx(
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
    assert scores.matthews_correlation(*labels) == pytest.approx(expected, abs=1e-14)


def test_matthews_of_two_classes_is_pearson():
    for predictions in itertools.product([0, 1], repeat=4):
        references = [0, 0, 1, 1]
        assert scores.matthews_correlation(predictions, references) == pytest.approx(
            scores.pearson(predictions, references)
        )


@pytest.mark.parametrize(("predictions", "references"), [([1, 1, 1], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([1], [1])])
def test_matthews_of_a_constant_is_zero(predictions, references):
    assert scores.matthews_correlation(predictions, references) == 0.0


def test_f1_looks_at_label_one(labels):
    predictions, references = (series % 2 for series in labels)
    assert scores.f1(predictions, references) == pytest.approx(f1_of(predictions, references, 1))
    assert scores.f1([0, 0], [0, 0]) == 0.0


def test_multilabel_f1():
    predictions, references = [[1, 0], [1, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]]
    assert scores.multilabel_f1(predictions, references, "micro") == pytest.approx(2 * 2 / (3 + 3))
    assert scores.multilabel_f1(predictions, references, "macro") == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_correlations():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50))
    dx, dy = x - x.mean(), y - y.mean()
    assert scores.pearson(x, y) == pytest.approx((dx @ dy) / np.sqrt((dx @ dx) * (dy @ dy)))
    ranks = [values.argsort().argsort() for values in (x, y)]
    assert scores.spearman(x, y) == pytest.approx(scores.pearson(*ranks))
    assert scores.spearman(x, np.exp(x)) == pytest.approx(1.0)
    assert scores.pearson([1, 1], [0, 3]) == scores.spearman([0, 3], [1, 1]) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scores.accuracy([], []), "non-empty"),
        (lambda: scores.accuracy([1, 0], [1]), "same length"),
        (lambda: scores.accuracy([0.5], [1]), "integer label ids"),
        (lambda: scores.accuracy([0], ["sport"]), "references must be integer"),
        (lambda: scores.macro_f1([3], [0], num_labels=3), "from 0 to 2, got 3"),
        (lambda: scores.per_class_scores([0], [-100], LABELS), "references must be label ids from 0"),
        (lambda: scores.per_class_scores([0], [0], ["a", "a"]), "must differ"),
        (lambda: scores.f1([2], [0]), "from 0 to 1"),
        (lambda: scores.multilabel_f1([[1]], [[1, 0]]), "same|shape"),
        (lambda: scores.multilabel_f1([[2]], [[1]]), "0 or 1"),
        (lambda: scores.multilabel_f1([[1]], [[1]], "weighted"), "micro"),
        (lambda: scores.pearson([float("nan")], [1.0]), "finite"),
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
        found = compute(EvalPrediction(predictions=outputs, label_ids=np.array([0, 1, 2])))
        assert found == pytest.approx(
            {
                "accuracy": 2 / 3,
                "macro_f1": (1 + 2 / 3 + 0) / 3,
                "matthews_correlation": scores.matthews_correlation([0, 1, 1], [0, 1, 2]),
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


def test_importing_the_module_leaves_evaluate_alone():
    code = "import sys, hf_ftstrategies.evaluation.scores; sys.exit('evaluate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
