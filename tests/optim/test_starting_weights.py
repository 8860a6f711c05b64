import pytest
import torch

from hf_ftstrategies.optim.starting_weights import starting_weights


def test_a_copy_at_the_start():
    weights = {"a": torch.nn.Parameter(torch.arange(3.0)), "b": torch.nn.Parameter(torch.ones(2, 2).half())}
    copy = starting_weights(weights, {"a": torch.zeros(3)}, 0, "mixout")
    with torch.no_grad():
        weights["a"].zero_()
    assert torch.equal(copy["a"], torch.arange(3.0))
    assert not copy["a"].requires_grad
    assert copy["b"].dtype == torch.float16


def test_later_what_was_loaded():
    weights = {"a": torch.nn.Parameter(torch.arange(3.0))}
    copy = starting_weights(weights, {"a": torch.ones(3, dtype=torch.float64), "more": torch.ones(1)}, 5, "mixout")
    assert list(copy) == ["a"]
    assert torch.equal(copy["a"], torch.ones(3))


@pytest.mark.parametrize("loaded", [{}, {"b": torch.ones(3)}, {"a": torch.ones(2)}])
def test_missing_ones_are_named(loaded):
    with pytest.raises(ValueError, match=r"mixout: .* step 5, .* for 1 of 1 parameters \(first 'a'\)"):
        starting_weights({"a": torch.ones(3)}, loaded, 5, "mixout")
