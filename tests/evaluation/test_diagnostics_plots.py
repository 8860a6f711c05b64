import numpy as np
import pytest

from hf_ftstrategies.evaluation import plots
from hf_ftstrategies.evaluation.diagnostics_plots import has_layer_distance, plot_layer_distance
from tests.evaluation.facts import plan

LAYERS = ["embeddings", "block_1", "block_2", "head"]


def history(logs=6, layers=LAYERS):
    """A log every 4 steps; the layers below the head move from the third on."""
    log = [{"eval_loss": 1.0, "step": 1}]
    for number in range(1, logs + 1):
        late = max(0, number - 2)
        distances = {f"layer_distance/{layer}": late * (d + 1) / 10 for d, layer in enumerate(layers)}
        updates = {f"layer_update/{layer}": 10.0 ** -(d + 1) * (late > 0) for d, layer in enumerate(layers)}
        head = {"layer_distance/head": number / 10, "layer_update/head": 0.1}
        log.append({"loss": 1.0, "adam_bias_ratio": 3.16, "step": 4 * number} | distances | updates | head)
    return log


def drawn(figure, path):
    return plots.save(figure, path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_lines_are_distances_and_colors_are_changes():
    lines, rows, *_ = plot_layer_distance(history()).axes
    shown = {line.get_label(): line.get_xydata() for line in lines.lines}
    assert list(shown) == ["head", "block 2", "block 1", "embeddings"]
    np.testing.assert_allclose(shown["head"], [(4 * n, n / 10) for n in range(7)])
    np.testing.assert_allclose(shown["block 1"], [(4 * n, max(0, n - 2) * 0.2) for n in range(7)])
    cells = rows.collections[0].get_array()
    np.testing.assert_allclose(cells[0], 0.1)
    np.testing.assert_array_equal(cells.mask[1:], [[True, True, *[False] * 4]] * 3)
    np.testing.assert_allclose(cells[1:, -1], [1e-3, 1e-2, 1e-1])


def test_layers_are_told_apart_by_the_colors_beside_their_rows():
    lines, rows, *_ = plot_layer_distance(history()).axes
    keys = [line for line in rows.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] < 0]
    assert [tuple(k.get_color()) for k in keys] == [tuple(line.get_color()) for line in lines.lines]
    assert [label.get_text() for label in rows.get_yticklabels()] == [line.get_label() for line in lines.lines]


def test_phases_are_named():
    figure = plot_layer_distance(history(12), plan(unfreezing=True, blocks=2)["phases"])
    figure.canvas.draw()
    assert "+ block 1" in {text.get_text() for text in figure.axes[0].texts}


@pytest.mark.parametrize(
    "log",
    [
        [],
        [{"loss": 1.0, "step": 1}],
        history(1),
        history(3, LAYERS[-1:]),
        history(3, ["embeddings", *(f"block_{k}" for k in range(1, 25)), "head"]),
        [{f"layer_{what}/head": 0.0 for what in ("distance", "update")} | {"step": 5}],
        [{f"layer_{what}/head": float("nan") for what in ("distance", "update")} | {"step": 5}],
    ],
)
def test_any_history_can_be_drawn(log, tmp_path):
    assert drawn(plot_layer_distance(log), tmp_path / "distance.png")


def test_only_where_it_was_logged():
    assert has_layer_distance(history())
    assert not has_layer_distance([{"loss": 1.0, "learning_rate/head": 1.0, "step": 1}])
