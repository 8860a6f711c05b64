import pytest
from transformers import Trainer

from hf_ftstrategies import LayerMap
from hf_ftstrategies.optim.groups import build_groups, check_complete
from tests.modeling.architectures import TINY_MODELS
from tests.tiny import tiny_bert


def groups_of(model):
    decay = Trainer.get_decay_parameter_names(None, model)
    return build_groups(LayerMap.from_model(model), decay, learning_rate=1e-3, weight_decay=0.1)


@pytest.mark.parametrize("architecture", TINY_MODELS)
def test_every_trainable_parameter_is_in_exactly_one_group(architecture):
    model = TINY_MODELS[architecture]()
    found = [id(p) for group in groups_of(model) for p in group.parameters.values()]
    assert sorted(found) == sorted(id(p) for p in model.parameters())


def test_groups_run_from_the_head_down_and_cross_decay():
    model = tiny_bert()
    keys = [(g.depth, g.weight_decay) for g in groups_of(model)]
    assert keys == [(d, w) for d in (4, 3, 2, 1, 0) for w in (0.1, 0.0)]
    without = {n for g in groups_of(model) if g.weight_decay == 0 for n in g.parameters}
    assert without == {n for n, _ in model.named_parameters() if "bias" in n or "LayerNorm" in n}


def test_frozen_parameters_stay_out():
    model = tiny_bert()
    model.bert.embeddings.requires_grad_(False)
    assert {g.depth for g in groups_of(model)} == {1, 2, 3, 4}
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        groups_of(model)


def test_a_lost_parameter_is_named():
    model = tiny_bert()
    groups = groups_of(model)
    groups[0].parameters.pop("classifier.weight")
    with pytest.raises(ValueError, match=r"classifier\.weight"):
        check_complete(groups, model)
