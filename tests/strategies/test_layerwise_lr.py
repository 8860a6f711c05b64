import pytest
from transformers import Trainer

from hf_ftstrategies import LayerMap, LayerwiseLearningRate
from hf_ftstrategies.optim.groups import build_groups
from tests.modeling.architectures import TINY_MODELS
from tests.tiny import tiny_bert


def rates(strategy, model, attribute="learning_rate"):
    layer_map = LayerMap.from_model(model)
    groups = build_groups(layer_map, Trainer.get_decay_parameter_names(None, model), 1.0, 0.1)
    strategy.adjust_groups(groups, layer_map)
    return {
        depth: max(getattr(g, attribute) for g in groups if g.depth == depth)
        for depth in range(layer_map.head_depth + 1)
    }


@pytest.mark.parametrize(
    ("style", "exponents"),  # embeddings, blocks 1 to 3, head
    [("sun", [3, 2, 1, 0, 0]), ("sun_code", [0, 2, 1, 0, 0]), ("zhang", [4, 3, 2, 1, 0])],
)
@pytest.mark.parametrize("decay", [0.95, 1 / 2.6])
def test_exponents(style, exponents, decay):
    found = rates(LayerwiseLearningRate(decay, style), tiny_bert())
    assert found == pytest.approx({depth: decay**k for depth, k in enumerate(exponents)})


def test_ulmfit_divides_by_2_6_from_layer_to_layer():
    found = rates(LayerwiseLearningRate(1 / 2.6, "zhang"), tiny_bert())
    assert [found[d + 1] / found[d] for d in range(4)] == pytest.approx([2.6] * 4)


def test_decay_is_crossed_with_weight_decay():
    model = tiny_bert()
    assert set(rates(LayerwiseLearningRate(0.9), model, "weight_decay").values()) == {0.1}
    assert rates(LayerwiseLearningRate(0.9, "zhang"), model, "weight_decay")[4] == 0.0
    assert rates(LayerwiseLearningRate(1.0, "zhang", 0.5), model, "weight_decay")[4] == 0.1


def test_head_rate():
    assert rates(LayerwiseLearningRate(1.0, head_learning_rate=7.0), tiny_bert()) == {
        0: 1,
        1: 1,
        2: 1,
        3: 1,
        4: 7,
    }


def test_shared_blocks_are_refused():
    layer_map = LayerMap.from_model(TINY_MODELS["albert"]())
    with pytest.raises(ValueError, match="ALBERT"):
        LayerwiseLearningRate(0.9).check(None, layer_map)
    LayerwiseLearningRate(1.0, head_learning_rate=1e-3).check(None, layer_map)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 0.0}, "layer_decay is 0"),
        ({"decay": 1.1}, "layer_decay is 1.1"),
        ({"decay": -0.5}, "layer_decay"),
        ({"style": "zang"}, "Did you mean 'zhang'"),
        ({"head_learning_rate": 0.0}, "head_learning_rate"),
    ],
)
def test_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        LayerwiseLearningRate(**settings)
