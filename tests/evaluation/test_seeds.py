import numpy as np
import pytest

from hf_ftstrategies.evaluation.seeds import compare_seeds, numbers_of, plot_seeds


def run(step, value, **splits):
    metrics = {split: {"accuracy": accuracy, "per_class": {}} for split, accuracy in splits.items()}
    return {"metrics": metrics, "selected": {"step": step, "value": value}}


RUNS = {7: run(3, 0.5, validation=0.5, test=0.7), 8: run(5, 0.8, validation=0.8, test=0.6)}


def test_mean_and_spread_are_those_of_numpy():
    runs = {**RUNS, 9: run(1, 0.9, validation=0.9, test=0.65)}
    found = compare_seeds(runs, 9)
    for split, values in (("validation", [0.5, 0.8, 0.9]), ("test", [0.7, 0.6, 0.65])):
        spread = found["metrics"][split]["accuracy"]
        expected = {"mean": np.mean(values), "std": np.std(values, ddof=1), "min": min(values), "max": max(values)}
        assert spread == pytest.approx(expected)
    assert found["selected_mean"] == pytest.approx(np.mean([0.5, 0.8, 0.9]))
    assert [(one["seed"], one["step"]) for one in found["runs"]] == [(7, 3), (8, 5), (9, 1)]
    assert numbers_of(RUNS[7]) == {"validation": {"accuracy": 0.5}, "test": {"accuracy": 0.7}}


def test_the_picture_has_every_seed_and_marks_the_one_kept():
    axis = plot_seeds(compare_seeds(RUNS, 8), "accuracy").axes[0]
    points = {
        (line.get_xdata()[0], line.get_ydata()[0]): line.get_marker()
        for line in axis.lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(0.5, 0): "o", (0.8, 0): "D", (0.7, 1): "o", (0.6, 1): "D"}


def test_seeds_that_are_equal_are_all_seen():
    runs = {seed: run(1, 0.5, validation=0.5) for seed in (1, 2, 3)}
    axis = plot_seeds(compare_seeds(runs, 2), "accuracy").axes[0]
    points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines if len(line.get_xdata()) == 1}
    assert len(points) == 3
