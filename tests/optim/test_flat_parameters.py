import pytest
import torch
from torch import nn

from hf_ftstrategies import LayerMap, SelfDistillation, SelfEnsemble
from hf_ftstrategies.optim.flat_parameters import FlatParameters, check_copyable, exchanged
from tests.tiny import arguments, equal, snapshot, tiny_bert


def parameters(**shapes):
    torch.manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}


def test_rows_are_copies_in_one_tensor_for_each_type():
    named = parameters(a=(2, 3), b=(4,), c=())
    named["wide"] = nn.Parameter(torch.randn(5, dtype=torch.float64))
    flat = FlatParameters(3)
    flat.include(named)
    assert [piece.shape for piece in flat.pieces] == [(3, 11), (3, 5)]
    assert all(equal(flat.row(row), snapshot_of(named)) for row in range(3))
    with torch.no_grad():
        named["a"].add_(1)
    flat.write(1)
    assert torch.equal(flat.row(1)["a"], named["a"])
    assert torch.equal(flat.row(0)["a"], named["a"] - 1)
    assert torch.equal(flat.pieces[0][1, :6], named["a"].flatten())


def snapshot_of(named):
    return {name: parameter.detach().clone() for name, parameter in named.items()}


@pytest.mark.parametrize(("storage", "dtype"), [("host", torch.float32), ("bfloat16", torch.bfloat16)])
def test_rows_stored_elsewhere_come_back_as_the_parameters_are(storage, dtype):
    named, flat = parameters(a=(2, 3), b=(4,)), FlatParameters(2, storage)
    flat.include(named)
    flat.write(1)
    assert [(piece.shape, piece.dtype, piece.device.type) for piece in flat.pieces] == [((2, 10), dtype, "cpu")]
    expected = {name: value.to(dtype).float() for name, value in snapshot_of(named).items()}
    assert equal(flat.restored(0), expected)
    assert equal(flat.restored(1), expected)


def test_parameters_join_later_with_their_present_values_and_only_once():
    named, flat = parameters(a=(2,), b=(3,)), FlatParameters(2)
    flat.include({"a": named["a"]})
    with torch.no_grad():
        named["a"].zero_()
        named["b"].zero_()
    flat.include(named)
    assert len(flat.pieces) == 2
    assert flat.row(0)["a"].abs().sum() > 0
    assert flat.row(1)["b"].abs().sum() == 0


def test_state_comes_back_in_the_same_pieces():
    named, flat, other = parameters(a=(2, 2), b=(3,)), FlatParameters(2), FlatParameters(2)
    flat.include({"b": named["b"]})
    flat.include(named)
    flat.pieces[0].normal_()
    state = dict(reversed(flat.state_dict("x").items()))
    other.load_state_dict("x", state | {"y.0.0.a": torch.zeros(2, 2)}, named)
    assert [torch.equal(mine, its) for mine, its in zip(flat.pieces, other.pieces, strict=True)] == [True, True]


def test_exchanged_weights_leave_and_come_back_without_a_trace():
    model = tiny_bert()
    before, versions = snapshot(model), [p._version for p in model.parameters()]
    weights = {"classifier.bias": torch.ones(3)}
    with exchanged(model, weights):
        assert torch.equal(model.classifier.bias, torch.ones(3))
        assert torch.equal(model.classifier.weight, before["classifier.weight"])
    with pytest.raises(KeyError), exchanged(model, weights):
        raise KeyError
    assert equal(before, snapshot(model))
    assert versions == [p._version for p in model.parameters()]


def test_what_cannot_be_copied(tmp_path, monkeypatch):
    check_copyable(arguments(tmp_path), LayerMap.from_model(tiny_bert()), "x")
    half = tiny_bert().to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"half precision .* load the model with dtype=torch\.float32"):
        check_copyable(arguments(tmp_path), LayerMap.from_model(half), "x")
    half.requires_grad_(False)
    check_copyable(arguments(tmp_path), LayerMap.from_model(half), "x")  # shared, not copied
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for strategy in (SelfDistillation(), SelfEnsemble()):
        with pytest.raises(ValueError, match=r"='s.*' copies whole parameters, which FSDP divides"):
            strategy.attach(arguments(tmp_path), LayerMap.from_model(tiny_bert()))
