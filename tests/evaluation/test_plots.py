import subprocess
import sys

import numpy as np
import pytest

from hf_ftstrategies.evaluation import plots
from tests.evaluation.facts import LABELS, PEAK, history, plan, results, slanted_triangular


def picture(figure):
    """The one array that a figure shows as colors, without the color bar."""
    return next(axis.images[0] for axis in figure.axes if axis.images).get_array()


def words(figure):
    figure.canvas.draw()
    return {text.get_text() for axis in figure.axes for text in axis.findobj(lambda a: hasattr(a, "get_text"))}


def drawn(figure, path):
    return plots.save(figure, path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_rates_are_peak_times_factor():
    shown = picture(plots.plot_learning_rates(plan()))
    assert shown.shape == (8, 48)
    expected = [[0.95 ** max(0, 6 - d) * slanted_triangular(t, 48) for t in range(48)] for d in range(7, -1, -1)]
    exponent = np.floor(np.log10(PEAK * np.max(expected)))
    np.testing.assert_allclose(shown * 10**exponent, PEAK * np.array(expected))


def test_frozen_cells_are_masked():
    frozen = picture(plots.plot_learning_rates(plan(unfreezing=True))).mask
    steps = np.arange(48)
    for row in range(8):
        np.testing.assert_array_equal(frozen[row], steps < 6 * row)


def test_phases_of_unknown_length_are_drawn_evenly():
    facts = plan(unfreezing=True, blocks=2)
    for phase in facts["phases"][1:]:
        phase["first_step"] = None
    frozen = picture(plots.plot_learning_rates(facts)).mask
    np.testing.assert_array_equal((~frozen).sum(axis=1), [48, 36, 24, 12])
    assert "?" in words(plots.plot_plan(facts))


def test_long_training_is_thinned_out():
    assert picture(plots.plot_learning_rates(plan(epochs=1000))).shape == (8, 800)


def test_plan_shows_sizes_rates_and_phases():
    shown = words(plots.plot_plan(plan(unfreezing=True)))
    assert {"head", "block 6 (re-init)", "11.9 M", "149.8 k", "9.50e-05", "+ embeddings"} <= shown


def test_loss_shows_every_logged_quantity():
    figure = plots.plot_loss(history(), plan(unfreezing=True)["phases"], selected_step=40)
    loss, metrics = figure.axes
    lines = {line.get_label(): line.get_xydata() for line in [*loss.lines, *metrics.lines]}
    training = [(row["step"], row["loss"]) for row in history() if "loss" in row]
    np.testing.assert_array_equal(lines["training"], training)
    assert lines["kept weights"][0][0] == 40
    assert {"validation", "accuracy", "macro F1", "Matthews correlation"} <= lines.keys()
    assert "+ block 1" in words(figure)


@pytest.mark.parametrize(
    "log",
    [
        [],
        [{"train_runtime": 1.0, "step": 0}],
        [{"loss": 1.0, "step": 1}],
        [{"loss": float("nan"), "step": 1}, {"loss": float("inf"), "step": 2}],
        [{"eval_loss": 1.0, "step": 1}],
        [{"eval_loss": 1.0, "eval_accuracy": 0.5, "eval_per_class": {}, "step": 1}],
    ],
)
def test_any_history_can_be_drawn(log, tmp_path):
    assert drawn(plots.plot_loss(log, selected_step=7), tmp_path / "loss.png")


def test_confusion_matrix_writes_counts_and_colors_shares():
    matrix = results()["confusion_matrix"]
    figure = plots.plot_confusion_matrix(matrix, LABELS)
    np.testing.assert_allclose(picture(figure).sum(axis=1), 1)
    assert {str(count) for row in matrix for count in row} <= words(figure)


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_any_number_of_labels_can_be_drawn(count, tmp_path):
    # A dollar sign would be a formula, an empty row has no shares.
    labels = [f"$\\frac{{{number} and a very long name of a label" for number in range(count)]
    figure = plots.plot_confusion_matrix(np.zeros((count, count), int).tolist(), labels)
    assert drawn(figure, tmp_path / "matrix.png")


def test_confusion_matrix_must_fit_the_labels():
    with pytest.raises(ValueError, match="3 labels need a square matrix"):
        plots.plot_confusion_matrix([[1, 0], [0, 1]], ["a", "b", "c"])


@pytest.mark.parametrize("change", [{"depths": []}, {"training": {"total_steps": 0}}])
def test_an_empty_plan_can_be_drawn(change, tmp_path):
    facts = plan() | change | {"phases": []}
    assert drawn(plots.plot_learning_rates(facts), tmp_path / "rates.png")
    assert drawn(plots.plot_plan(facts), tmp_path / "plan.png")


@pytest.mark.parametrize("facts", [plan(), plan(unfreezing=True), plan(unfreezing=True, blocks=24)])
def test_plans_can_be_drawn(facts, tmp_path):
    assert drawn(plots.plot_learning_rates(facts), tmp_path / "rates.png")
    assert drawn(plots.plot_plan(facts), tmp_path / "plan.png")


def test_a_plan_whose_rates_are_zero(tmp_path):
    facts = plan()
    for row in facts["depths"]:
        row["learning_rate"] = 0.0
    assert drawn(plots.plot_learning_rates(facts), tmp_path / "rates.png")
    assert drawn(plots.plot_plan(facts), tmp_path / "plan.png")


def test_a_plan_in_which_all_is_frozen(tmp_path):
    facts = plan()
    for row in facts["depths"]:
        row["trained_in"] = [False]
    assert drawn(plots.plot_learning_rates(facts), tmp_path / "rates.png")


def test_no_global_state():
    code = "import sys, hf_ftstrategies.evaluation.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_loss_of_an_ensemble_is_drawn_with_the_losses():
    history = [
        {"loss": 1.0, "step": 1},
        {"eval_loss": 1.2, "eval_accuracy": 0.5, "eval_runtime": 1.0, "step": 1},
        {"eval_ensemble_loss": 1.1, "eval_ensemble_accuracy": 0.6, "eval_ensemble_runtime": 1.0, "step": 1},
    ]
    loss, metrics = plots.plot_loss(history).axes
    assert [line.get_label() for line in loss.lines] == ["training", "validation", "validation, ensemble"]
    assert [line.get_label() for line in metrics.lines] == ["accuracy", "ensemble accuracy"]
