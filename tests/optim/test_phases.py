import pytest

from hf_ftstrategies import LayerMap
from hf_ftstrategies.optim.phases import (
    EarlyStop,
    Phase,
    built_in_phases,
    check_ends,
    parse_every,
    with_even_ends,
)
from tests.tiny import tiny_bert


@pytest.fixture(scope="module")
def layer_map():
    return LayerMap.from_model(tiny_bert())


def depths_of(phase, layer_map):
    return {layer_map.depth_of(name) for name in phase.trains}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("gradual", [{4}, {3, 4}, {2, 3, 4}, {1, 2, 3, 4}, {0, 1, 2, 3, 4}]),
        ("ulmfit", [{4}, {3, 4}, {0, 1, 2, 3, 4}]),
        ("chain_thaw", [{4}, {0}, {1}, {2}, {3}, {0, 1, 2, 3, 4}]),
        ("last", [{3, 4}]),
        ("head", [{4}]),
    ],
)
def test_published_schedules(layer_map, mode, expected):
    phases = built_in_phases(mode, layer_map)
    assert [depths_of(phase, layer_map) for phase in phases] == expected
    for phase in phases:  # whole depths only
        names = {n for d in depths_of(phase, layer_map) for n in layer_map.parameters_at(d)}
        assert phase.trains == names


@pytest.mark.parametrize(("every", "ends"), [("epoch", [7, 14]), (5, [5, 10]), (0.25, [5, 10])])
def test_even_ends(layer_map, every, ends):
    phases = with_even_ends(built_in_phases("ulmfit", layer_map), every, total_steps=21, steps_per_epoch=7)
    assert [p.until_step for p in phases] == [*ends, None]


def test_phases_that_outlast_the_training(layer_map):
    phases = with_even_ends(built_in_phases("gradual", layer_map), "epoch", total_steps=12, steps_per_epoch=4)
    with pytest.raises(ValueError, match=r"phase 4 .* begin at step 12 and the training ends at step 12"):
        check_ends(phases, 12, 4, "unfreezing='gradual'")
    check_ends(phases, 17, 4, "")


def test_ends_must_rise():
    phases = [Phase("a", frozenset(), 8), Phase("b", frozenset(), 8), Phase("c", frozenset())]
    with pytest.raises(ValueError, match=r"phase 2 \(b\) ends at step 8"):
        check_ends(phases, 20, 4, "file")


@pytest.mark.parametrize("end", [6, 40])
def test_the_last_phase_ends_with_the_training(end):
    phases = [Phase("a", frozenset(), 4), Phase("b", frozenset(), end)]
    with pytest.raises(ValueError, match=rf"last phase \(b\) ends at step {end}, the training at step 20"):
        check_ends(phases, 20, 4, "file")
    check_ends([phases[0], Phase("b", frozenset(), 20)], 20, 4, "file")


def test_an_early_stopped_phase_may_end_at_any_time():
    phases = [
        Phase("a", frozenset(), None, EarlyStop("loss")),
        Phase("b", frozenset(), 5),
        Phase("c", frozenset()),
    ]
    check_ends(phases, 20, 4, "file")


@pytest.mark.parametrize(("text", "value"), [("epoch", "epoch"), ("50", 50), ("0.1", 0.1), (3, 3), (0.5, 0.5)])
def test_parse_every(text, value):
    assert parse_every(text) == value


@pytest.mark.parametrize("text", ["epochs", "0", "-3", "2.5", "nan", ""])
def test_parse_every_refuses(text):
    with pytest.raises(ValueError, match="unfreeze_every"):
        parse_every(text)


@pytest.mark.parametrize(
    ("stop", "value", "best", "better"),
    [
        (EarlyStop("accuracy"), 0.6, 0.5, True),
        (EarlyStop("accuracy"), 0.5, 0.5, False),
        (EarlyStop("eval_loss"), 0.4, 0.5, True),
        (EarlyStop("perplexity", greater_is_better=False), 3.0, 2.0, False),
        (EarlyStop("loss"), 9.0, None, True),
    ],
)
def test_better(stop, value, best, better):
    assert stop.better(value, best) is better
