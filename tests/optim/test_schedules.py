import json
import math

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from hf_ftstrategies.optim.schedules import Schedule, bert_linear, make_scheduler, slanted_triangular
from tests.tiny import arguments


def paper_equation(t, T, cut_frac, ratio):
    """ULMFiT equation 3 as printed."""
    cut = math.floor(T * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


@pytest.mark.parametrize(("total", "cut_fraction", "ratio"), [(100, 0.1, 32), (640, 0.125, 8), (50, 0.5, 10)])
def test_slanted_triangular_is_the_papers_equation(total, cut_fraction, ratio):
    for step in range(total):
        assert slanted_triangular(step, total, cut_fraction, ratio) == paper_equation(step, total, cut_fraction, ratio)


def test_slanted_triangular_corners():
    assert slanted_triangular(0, 100) == 1 / 32
    assert slanted_triangular(10, 100) == 1.0
    assert slanted_triangular(100, 100) == pytest.approx(1 / 32)


def test_slanted_triangular_never_falls_below_its_lowest_rate():
    assert paper_equation(18, 19, 0.1, 32) < 0  # floor(1.9) = 1: the printed equation turns negative
    for total in range(1, 60):
        assert all(1 / 32 <= slanted_triangular(step, total) <= 1 for step in range(total + 1))


@pytest.mark.parametrize("bad", [{"cut_fraction": 0.0}, {"cut_fraction": 1.0}, {"ratio": 0.5}, {"total_steps": 0}])
def test_slanted_triangular_refuses(bad):
    with pytest.raises(ValueError, match=r"stlr_|total_steps"):
        slanted_triangular(**{"step": 0, "total_steps": 10, **bad})


def test_bert_linear_jumps_where_transformers_linear_does_not():
    assert bert_linear(9, 100, 10) == 0.9
    assert bert_linear(10, 100, 10) == 0.9
    assert bert_linear(55, 100, 10) == pytest.approx(0.45)
    assert bert_linear(100, 100, 10) == 0.0
    assert bert_linear(0, 100, 0) == 1.0
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    assert get_linear_schedule_with_warmup(optimizer, 10, 100).lr_lambdas[0](10) == 1.0


def test_every_group_keeps_its_own_peak():
    groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in (1.0, 0.1)]
    optimizer = torch.optim.SGD(groups)
    scheduler = make_scheduler(optimizer, Schedule("bert_linear", total_steps=10, warmup_steps=2))
    for step in range(10):
        expected = bert_linear(step, 10, 2)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([expected, 0.1 * expected])
        optimizer.step()
        scheduler.step()


def test_scheduler_state_is_json():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    state = make_scheduler(optimizer, Schedule("slanted_triangular", 10)).state_dict()
    assert state["lr_lambdas"][0]["total_steps"] == 10
    json.dumps(state)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"lr_schedule": "slanted_triangel"}, "Did you mean 'slanted_triangular'"),
        ({"lr_schedule": "bert_linear", "lr_scheduler_type": "cosine"}, "two schedules"),
        ({"lr_schedule": "slanted_triangular", "warmup_steps": 10}, "stlr_cut_fraction"),
        ({"lr_schedule": "slanted_triangular", "stlr_cut_fraction": 1.5}, "stlr_cut_fraction is 1.5"),
    ],
)
def test_contradicting_settings(tmp_path, bad, message):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **bad)
