import copy

import numpy as np
import pytest
import torch

from hf_ftstrategies import BertAdam

KERNELS = [{"foreach": False}, {"foreach": True}, {"fused": True}]


def reference(p, gradients, lr, eps, weight_decay, clip=None, betas=(0.9, 0.999)):
    """BERT's update in float64, as in the code of Sun et al. 2019."""
    m, v, path = np.zeros_like(p), np.zeros_like(p), []
    for g in gradients:
        if clip is not None:
            g = g * min(1.0, clip / (np.sqrt((g**2).sum()) + 1e-6))
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        p = p - lr * (m / (np.sqrt(v) + eps) + weight_decay * p)
        path.append(p)
    return path


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("eps", [1e-6, 1e-8])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-6])
def test_thirty_steps_against_float64(kernel, eps, scale):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(5, 3)), scale * rng.normal(size=(30, 5, 3))
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = BertAdam([parameter], lr=1e-2, eps=eps, weight_decay=0.01, **kernel)
    for gradient, expected in zip(gradients, reference(start, gradients, 1e-2, eps, 0.01)):
        parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        assert np.abs(parameter.detach().numpy() - expected).max() < 1e-5


def first_updates(optimizer_class, steps):
    """Size of each update under a constant gradient, where m / sqrt(v) has no noise."""
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = optimizer_class([parameter], lr=1.0, eps=0.0, weight_decay=0.0, foreach=False)
    sizes = []
    for _ in range(steps):
        before = parameter.item()
        parameter.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
        sizes.append(abs(parameter.item() - before))
    return np.array(sizes)


def test_ratio_to_debiased_adam():
    ratio = first_updates(BertAdam, 1000) / first_updates(torch.optim.AdamW, 1000)
    t = np.arange(1, 1001)
    assert ratio == pytest.approx((1 - 0.9**t) / np.sqrt(1 - 0.999**t))
    assert ratio[[0, 11, 99, 999]].round(2).tolist() == [3.16, 6.57, 3.24, 1.26]
    assert ratio.argmax() + 1 == 12


@pytest.mark.parametrize("kernel", KERNELS)
def test_clips_each_tensor_by_itself(kernel):
    rng = np.random.default_rng(1)
    start, gradients = rng.normal(size=(4,)), 10 * rng.normal(size=(5, 4))
    small = torch.nn.Parameter(torch.zeros(2))
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = BertAdam([parameter, small], lr=1e-2, weight_decay=0.0, max_norm_per_tensor=1.0, **kernel)
    for gradient, expected in zip(gradients, reference(start, gradients, 1e-2, 1e-6, 0.0, clip=1.0)):
        parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        small.grad = torch.full((2,), 0.1)
        optimizer.step()
        assert np.abs(parameter.detach().numpy() - expected).max() < 1e-5
        assert torch.equal(small.grad, torch.full((2,), 0.1))


@pytest.mark.parametrize("kernel", KERNELS)
def test_resumes_to_equal_bits(kernel):
    def train(optimizer, parameter, steps):
        for step in steps:
            parameter.grad = torch.sin(torch.arange(6.0) + step)
            optimizer.step()

    straight = torch.nn.Parameter(torch.ones(6))
    optimizer = BertAdam([straight], lr=0.1, **kernel)
    train(optimizer, straight, range(5))
    resumed = torch.nn.Parameter(straight.detach().clone())
    other = BertAdam([resumed], lr=0.1, **kernel)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(optimizer, straight, range(5, 9))
    train(other, resumed, range(5, 9))
    assert torch.equal(straight, resumed)


def test_late_parameters_are_not_debiased_either():
    early, late = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = BertAdam([early, late], lr=1.0, weight_decay=0.0)
    for step in range(3):
        early.grad = torch.ones(1)
        late.grad = torch.ones(1) if step == 2 else None
        optimizer.step()
    assert late.item() == pytest.approx(-0.1 / np.sqrt(0.001), rel=1e-3)


def test_refuses_a_norm_of_zero():
    with pytest.raises(ValueError, match="positive"):
        BertAdam([torch.nn.Parameter(torch.zeros(1))], max_norm_per_tensor=0.0)
