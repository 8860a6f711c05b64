import pytest
import torch
from transformers import BertForSequenceClassification, RobertaForSequenceClassification

from hf_ftstrategies import LayerMap, ReinitTopLayers
from tests.modeling.architectures import TINY_MODELS
from tests.tiny import arguments, loaded_bert, snapshot, tiny_bert


def reinit(model, strategy, tmp_path):
    layer_map = LayerMap.from_model(model)
    strategy.attach(arguments(tmp_path), layer_map)
    before = snapshot(model)
    strategy.prepare_model(model, layer_map)
    return before


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_exactly_the_top_blocks_and_the_pooler_change_on_a_loaded_model(tmp_path, layers):
    model = loaded_bert(tmp_path)
    with torch.no_grad():  # as after pre-training: nothing looks like its initial value
        for parameter in model.parameters():
            parameter.fill_(7.0)
    before = reinit(model, ReinitTopLayers(layers), tmp_path)
    changed = {name for name, old in before.items() if not torch.equal(model.state_dict()[name], old)}
    parts = [f"bert.encoder.layer.{i}." for i in range(3 - layers, 3)] + ["bert.pooler."]
    assert changed == {name for name in before if name.startswith(tuple(parts))}


def test_distribution(tmp_path):
    model = loaded_bert(tmp_path, initializer_range=0.05)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    reinit(model, ReinitTopLayers(3), tmp_path)
    state = {n: p for n, p in model.state_dict().items() if "encoder" in n}
    linear = torch.cat([p.flatten() for n, p in state.items() if n.endswith("weight") and "LayerNorm" not in n])
    assert linear.mean().abs() < 3 * 0.05 / len(linear) ** 0.5
    assert linear.std() == pytest.approx(0.05, rel=0.05)
    assert all((p == 0).all() for n, p in state.items() if n.endswith("bias"))
    assert all((p == 1).all() for n, p in state.items() if n.endswith("LayerNorm.weight"))


def test_seeded_and_outside_the_random_stream_of_training(tmp_path):
    models = [loaded_bert(tmp_path) for _ in range(3)]
    torch.manual_seed(1)
    stream = torch.rand(3)
    for model, seed in zip(models, (5, 5, 6)):
        torch.manual_seed(1)
        reinit(model, ReinitTopLayers(1, seed=seed), tmp_path)
        assert torch.equal(torch.rand(3), stream)
    weights = [model.bert.encoder.layer[2].output.dense.weight for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("architecture", sorted(set(TINY_MODELS) - {"albert"}))
def test_reaches_every_architecture(architecture, tmp_path):
    model = TINY_MODELS[architecture]()
    model.save_pretrained(tmp_path / "model")
    model = type(model).from_pretrained(tmp_path / "model")
    before = reinit(model, ReinitTopLayers(1), tmp_path)
    layer_map = LayerMap.from_model(model)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and layer_map.depth_of(name) <= layer_map.num_blocks:
            top = layer_map.depth_of(name) == layer_map.num_blocks
            assert torch.equal(parameter, before[name]) is not top, name


def test_pooler_is_an_option(tmp_path):
    model = loaded_bert(tmp_path)
    before = reinit(model, ReinitTopLayers(1, pooler=False), tmp_path)
    assert torch.equal(model.bert.pooler.dense.weight, before["bert.pooler.dense.weight"])
    before = reinit(model, ReinitTopLayers(0, pooler=True), tmp_path)
    assert not torch.equal(model.bert.pooler.dense.weight, before["bert.pooler.dense.weight"])


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="has 3 blocks"):
        reinit(tiny_bert(), ReinitTopLayers(4), tmp_path)
    with pytest.raises(ValueError, match="reinit_layers is -1"):
        ReinitTopLayers(-1)
    with pytest.raises(ValueError, match="does nothing"):
        ReinitTopLayers(0)
    with pytest.raises(ValueError, match="ALBERT"):
        reinit(TINY_MODELS["albert"](), ReinitTopLayers(1), tmp_path)
    with pytest.raises(ValueError, match="no pooler"):
        reinit(
            RobertaForSequenceClassification(TINY_MODELS["roberta"]().config),
            ReinitTopLayers(1, True),
            tmp_path,
        )
    frozen = tiny_bert()
    frozen.bert.encoder.layer[2].requires_grad_(False)
    with pytest.raises(ValueError, match="stay random"):
        reinit(frozen, ReinitTopLayers(1), tmp_path)


def test_a_silent_no_op_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(BertForSequenceClassification, "_init_weights", lambda self, module: None)
    with pytest.raises(RuntimeError, match="as they were"):
        reinit(loaded_bert(tmp_path), ReinitTopLayers(1), tmp_path)
