import numpy as np
import pytest
import torch
from torch import nn

from hf_ftstrategies.optim.parameter_averages import (
    EXACT_SIZE,
    BestMean,
    MovingAverage,
    ParameterWindow,
    WindowMean,
    ema_weight,
    mean_weight,
)


class Walk:
    """A parameter of two tensors on a random walk, with its past in float64."""

    def __init__(self, seed=0, scale=0.1):
        self.draw, self.scale = torch.Generator().manual_seed(seed), scale
        start = torch.randn(5, generator=self.draw)
        self.named = {"a": nn.Parameter(start[:3].clone()), "b": nn.Parameter(start[3:].view(1, 2).clone())}
        self.past = [self.values()]

    def values(self):
        return np.concatenate([p.detach().double().flatten().numpy() for p in self.named.values()])

    def step(self, update=None):
        with torch.no_grad():
            for parameter in self.named.values():
                parameter.add_(self.scale * torch.randn(parameter.shape, generator=self.draw))
        self.past.append(self.values())
        if update is not None:
            update.update()


def flat(copy):
    return torch.cat([copy["a"].flatten(), copy["b"].flatten()]).double().numpy()


@pytest.mark.parametrize("with_initial", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, EXACT_SIZE, EXACT_SIZE + 1, 25])
def test_window_mean_is_the_mean_of_the_last_values(size, with_initial):
    walk, mean, window = Walk(), WindowMean(size, with_initial), ParameterWindow(size, with_initial)
    for one in (mean, window):
        one.include(walk.named)
    for step in range(1, 3 * size + 2):
        walk.step(mean)
        window.update()
        students = walk.past if with_initial else walk.past[1:]
        expected = np.array(students[-size:])
        assert len(list(window.copies())) == len(expected) == min(step + with_initial, size)
        np.testing.assert_allclose(flat(mean.copies()[0]), expected.mean(0), rtol=0, atol=2e-6)
        found = sorted(map(tuple, map(flat, window.copies())))
        assert found == sorted(map(tuple, expected))


@pytest.mark.parametrize("size", [3, EXACT_SIZE + 1, 200])
def test_the_window_mean_does_not_drift_over_10000_updates(size):
    walk, mean = Walk(scale=1.0), WindowMean(size, with_initial=True)
    mean.include(walk.named)
    worst = 0.0
    for _ in range(10_000):
        walk.step(mean)
        expected = np.mean(walk.past[-size:], 0)
        worst = max(worst, np.max(np.abs(flat(mean.copies()[0]) - expected) / np.maximum(1, np.abs(expected))))
    assert worst < 1e-5


def test_mean_of_all():
    walk, average = Walk(), MovingAverage(mean_weight)
    average.include(walk.named)
    assert np.array_equal(flat(average.copies()[0]), walk.past[0])
    for _ in range(10_000):
        walk.step(average)
    np.testing.assert_allclose(flat(average.copies()[0]), np.mean(walk.past[1:], 0), rtol=1e-4)


def test_exponential_moving_average():
    walk, average = Walk(), MovingAverage(ema_weight)
    average.include(walk.named)
    expected = walk.past[0]
    for n in range(1, 2001):
        walk.step(average)
        decay = min(0.995, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * walk.past[-1]
        np.testing.assert_allclose(flat(average.copies()[0]), expected, rtol=0, atol=1e-5)
    assert decay == 0.995


@pytest.mark.parametrize("size", [1, 3, 50])
def test_mean_of_the_best(size):
    walk, average = Walk(), BestMean(size)
    average.include(walk.named)
    scores = np.random.default_rng(0).integers(0, 12, 40).astype(float)
    scores[[4, 17]] = np.nan
    for n, score in enumerate(scores):
        walk.step()
        average.offer(score)
        known = [k for k in range(n + 1) if scores[k] == scores[k]]
        best = sorted(known, key=lambda k: (-scores[k], k))[:size]
        np.testing.assert_allclose(
            flat(average.copies()[0]), np.mean([walk.past[k + 1] for k in best], 0), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("size", [3, EXACT_SIZE + 1])
def test_a_window_in_bfloat16_has_the_mean_of_the_rounded_values(size):
    walk, window = Walk(), WindowMean(size, with_initial=True, storage="bfloat16")
    window.include(walk.named)
    for _ in range(3 * size):
        walk.step(window)
        rounded = torch.tensor(np.array(walk.past[-size:])).to(torch.bfloat16).double()
        assert [view.dtype for view in window.copies()[0].values()] == [torch.float32] * 2
        np.testing.assert_allclose(flat(window.copies()[0]), rounded.mean(0), rtol=0, atol=2e-6)


MAKERS = {
    "in bfloat16": lambda: WindowMean(4, with_initial=True, storage="bfloat16"),
    "window in bfloat16": lambda: ParameterWindow(4, with_initial=True, storage="bfloat16"),
    "window on the host": lambda: ParameterWindow(4, with_initial=True, storage="host"),
    "exact mean": lambda: WindowMean(4, with_initial=True),
    "mean of many": lambda: WindowMean(EXACT_SIZE + 2, with_initial=False),
    "window": lambda: ParameterWindow(4, with_initial=True),
    "mean of all": lambda: MovingAverage(mean_weight),
    "moving average": lambda: MovingAverage(ema_weight),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_joins_late_was_constant_before(make):
    """Frozen for some steps, then trained: the average is that of a parameter that was there throughout."""
    late, early = make(), make()
    named = {"a": nn.Parameter(torch.randn(4)), "b": nn.Parameter(torch.randn(3))}
    early.include(named)
    late.include({"a": named["a"]})
    for step in range(40):
        trains = ("a", "b") if step >= 17 else ("a",)
        late.include({name: named[name] for name in trains})
        with torch.no_grad():
            for name in trains:
                named[name].add_(torch.randn(named[name].shape))
        late.update()
        early.update()
        if step >= 17:
            for mine, other in zip(late.copies(), early.copies(), strict=True):
                torch.testing.assert_close(mine, other, rtol=0, atol=2e-6)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("cut", [0, 1, 3, 4, 13, 30])
def test_resumes_to_equal_bits(make, cut):
    walk, straight, resumed = Walk(), make(), make()
    straight.include({"a": walk.named["a"]})
    straight.include(walk.named)  # in two pieces: the last bit of a sum depends on the place in a piece
    for _ in range(cut):
        walk.step(straight)
    resumed.load_state_dict(
        {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in straight.state_dict().items()}, walk.named
    )
    for _ in range(30):
        for mine, other in zip(straight.copies(), resumed.copies(), strict=True):
            assert np.array_equal(flat(mine), flat(other))
        walk.step(straight)
        resumed.update()
