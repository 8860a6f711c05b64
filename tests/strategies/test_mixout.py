import copy
import dataclasses
import json

import peft
import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, BertForMaskedLM, Trainer, TrainerCallback, TrainerState

from hf_ftstrategies import LayerMap, Mixout, StrategyTrainer
from hf_ftstrategies.strategies.mixout import MixedLinear
from tests.modeling.architectures import TINY_MODELS, tiny_inputs
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

COMPOSED = {
    "layer_decay": 0.9,
    "reinit_layers": 1,
    "unfreezing": "ulmfit",
    "unfreeze_every": "2",
    "weight_decay": 0.1,
}


class Begin(TrainerCallback):
    """Keeps a copy of the model as it is after the first step of a training."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:
            self.model = copy.deepcopy(model)


def begin(model, tmp_path, strategy):
    """The model as `on_train_begin` leaves it, without a trainer."""
    strategy.attach(arguments(tmp_path), LayerMap.from_model(model))
    strategy.on_train_begin(None, TrainerState(), None, model=model)
    return model


def train(folder, model=None, resume=None, callbacks=None, trainer=StrategyTrainer, **settings):
    trainer = trainer(
        tiny_bert() if model is None else model,
        arguments(folder, **settings),
        train_dataset=rows(),
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def mixed_linear(probability=0.3, mask="column"):
    torch.manual_seed(0)
    layer = nn.Linear(6, 4).double()
    layer.__class__ = MixedLinear
    layer.register_buffer("mixout_target", torch.randn(4, 6, dtype=torch.float64), persistent=False)
    layer.mixout_probability, layer.mixout_mask = probability, mask
    return layer


@pytest.mark.parametrize("mask", ["column", "parameter"])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_weight_and_gradient_are_those_of_the_formula(mask, probability):
    layer, p = mixed_linear(probability, mask), probability
    x = torch.randn(5, 6, dtype=torch.float64)
    torch.manual_seed(1)
    out = layer(x)
    out.square().sum().backward()
    torch.manual_seed(1)
    n = torch.empty((4, 6) if mask == "parameter" else (1, 6), dtype=torch.float64).bernoulli_(1 - p)
    target, weight = layer.mixout_target, layer.weight.detach()
    mixed = ((1 - n) * target + n * weight - p * target) / (1 - p)
    expected = x @ mixed.T + layer.bias
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(layer.weight.grad, (2 * expected.T @ x) * n / (1 - p))
    torch.testing.assert_close(layer.bias.grad, 2 * expected.sum(0))


@pytest.mark.parametrize("mask", ["column", "parameter"])
def test_the_mean_of_the_mixtures_is_the_weight(mask):
    layer = mixed_linear(0.5, mask)
    draws = torch.stack([layer(torch.eye(6, dtype=torch.float64)) for _ in range(4000)])
    expected = (layer.weight.T + layer.bias).detach()
    error = draws.std(0) / 4000**0.5
    assert ((draws.mean(0) - expected).abs() < 5 * error).all()
    columns = (draws[:, :, :1] == draws[0, :, :1]) == (draws[:, :, 1:2] == draws[0, :, 1:2])
    assert columns.all() == (mask == "column")  # whether all outputs take an input from the same side


def test_gradient_by_finite_differences():
    layer = mixed_linear()
    x = torch.randn(5, 6, dtype=torch.float64)

    def out(weight):
        torch.manual_seed(1)
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(out, layer.weight)


@pytest.mark.parametrize("settings", [{}, {"mask": "parameter"}, {"keep_dropout": True}, {"head": False}])
def test_evaluation_is_the_plain_model(tmp_path, settings):
    model, inputs = tiny_bert(dropout=0.3), {"input_ids": torch.arange(16).view(2, 8)}
    begin(model, tmp_path, Mixout(0.5, **settings))
    with torch.no_grad():
        for parameter in model.parameters():  # some way from the targets
            parameter.mul_(2)
    plain = tiny_bert(dropout=0.3).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(**inputs).logits, plain(**inputs).logits)
    assert not torch.equal(model.train()(**inputs).logits, model(**inputs).logits)


def names_of_mixed(model):
    return {name for name, module in model.named_modules() if isinstance(module, MixedLinear)}


@pytest.mark.parametrize("head", [True, False])
def test_all_linear_layers_are_mixed_and_dropout_is_off(tmp_path, head):
    model = tiny_bert()
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    before, parameters = snapshot(model), list(model.parameters())
    strategy = Mixout(0.5, head=head)
    begin(model, tmp_path, strategy)
    assert names_of_mixed(model) == (linear if head else linear - {"classifier"})
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.0}
    assert equal(snapshot(model), before)  # no new names, no changed values
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    assert equal(strategy.state_dict(), {f"{n}.weight": before[f"{n}.weight"] for n in names_of_mixed(model)})
    strategy.on_train_end(None, None, None)
    assert names_of_mixed(model) == set()
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.1}
    assert dict(model.named_buffers()).keys() == dict(tiny_bert().named_buffers()).keys()
    assert not any("mixout" in key for module in model.modules() for key in vars(module))


def test_targets_follow_the_type_of_the_model(tmp_path):
    model = begin(tiny_bert(), tmp_path, Mixout(0.5))
    assert model.to(torch.bfloat16).classifier.mixout_target.dtype == torch.bfloat16


def test_dropout_can_stay(tmp_path):
    model = begin(tiny_bert(), tmp_path, Mixout(0.5, keep_dropout=True))
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.1}


@pytest.mark.parametrize("architecture", sorted(set(TINY_MODELS) - {"gpt2"}))
def test_every_architecture_trains_and_comes_back(tmp_path, architecture):
    model, inputs = TINY_MODELS[architecture](), tiny_inputs()
    classes, plain = [type(m) for m in model.modules()], model.eval()(**inputs).logits
    strategy = Mixout(0.5, mask="parameter")
    begin(model, tmp_path, strategy)
    blocks = LayerMap.from_model(model).blocks
    assert all(any(isinstance(m, MixedLinear) for m in block.modules()) for block in blocks)
    assert torch.equal(model.eval()(**inputs).logits, plain)
    model.train()(**inputs).loss.backward()
    strategy.on_train_end(None, None, None)
    assert [type(m) for m in model.modules()] == classes


def test_a_tied_decoder_is_an_embedding_and_not_mixed(tmp_path):
    model = begin(BertForMaskedLM(tiny_bert().config), tmp_path, Mixout(0.5))
    assert "cls.predictions.transform.dense" in names_of_mixed(model)
    assert "cls.predictions.decoder" not in names_of_mixed(model)


def test_targets_are_the_weights_after_reinit(tmp_path):
    model, first = loaded_bert(tmp_path), Begin()
    old = snapshot(model)
    trainer = train(tmp_path / "out", model, mixout=0.5, reinit_layers=1, learning_rate=1e-9, callbacks=[first])
    target = first.model.bert.encoder.layer[2].output.dense.mixout_target
    assert (target - old["bert.encoder.layer.2.output.dense.weight"]).abs().max() > 1e-3
    torch.testing.assert_close(target, trainer.model.bert.encoder.layer[2].output.dense.weight, rtol=0, atol=1e-6)
    assert torch.equal(
        first.model.bert.encoder.layer[1].output.dense.mixout_target, old["bert.encoder.layer.1.output.dense.weight"]
    )
    assert [s.state_dict() for s in trainer.strategies if s.name == "mixout"] == [{}]  # nothing is held on to


def test_saved_model_is_stock(tmp_path):
    trainer = train(tmp_path, mixout=0.5, save_strategy="epoch")
    folder = tmp_path / "checkpoint-6"
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    assert config["architectures"] == ["BertForSequenceClassification"]
    stock = AutoModelForSequenceClassification.from_pretrained(folder)
    assert equal(snapshot(stock), snapshot(trainer.model))
    assert {type(m) for m in trainer.model.modules()} == {type(m) for m in stock.modules()}
    assert {m.p for m in stock.modules() if isinstance(m, nn.Dropout)} == {0.1}


def test_an_error_gives_the_plain_model_back(tmp_path):
    class Fail(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    model = tiny_bert()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, model, mixout=0.5, callbacks=[Fail()])
    assert names_of_mixed(model) == set()
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.1}


@pytest.mark.parametrize("cut", [1, 4])
@pytest.mark.parametrize("settings", [{}, {"mixout_mask": "parameter", "mixout_keep_dropout": True}, COMPOSED])
def test_resumes_to_equal_bits(tmp_path, cut, settings):
    settings = {"mixout": 0.5, "save_strategy": "steps", "save_steps": 1, **settings}
    straight = train(tmp_path / "straight", loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", loaded_bert(tmp_path), callbacks=[StopAt(cut)], **settings)
    resumed = train(tmp_path / "cut", loaded_bert(tmp_path), resume=True, **settings)
    assert resumed.state.global_step == straight.state.global_step == 6
    assert equal(snapshot(straight.model), snapshot(resumed.model))


def test_it_holds_the_weights_back(tmp_path):
    """The adaptive L2 penalty of the paper: the same steps end nearer to the start."""
    begin_weights, settings = snapshot(tiny_bert()), {"num_train_epochs": 10, "learning_rate": 1e-3}
    distances = []
    for mixout in (0.0, 0.9):
        end = snapshot(train(tmp_path / str(mixout), tiny_bert(dropout=0.0), mixout=mixout, **settings).model)
        distances.append(sum((end[n] - w).square().sum() for n, w in begin_weights.items() if "encoder" in n))
    assert distances[1] < distances[0]


def test_as_a_plain_callback_of_a_stock_trainer(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 3}
    runs = []
    for trainer in (Trainer, StrategyTrainer):
        folder, first = tmp_path / trainer.__name__, Begin()
        runs.append(
            train(folder, trainer=trainer, callbacks=[Mixout(0.5), first], **settings)
            if trainer is Trainer
            else train(folder, callbacks=[first], mixout=0.5, **settings)
        )
        assert names_of_mixed(first.model)
    assert equal(snapshot(runs[0].model), snapshot(runs[1].model))
    with pytest.raises(ValueError, match=r"mixout: the training goes on at step 6, .* missing for 20 of 20"):
        train(tmp_path / "Trainer", trainer=Trainer, callbacks=[Mixout(0.5)], resume=True, **settings)


# the first torch.compile of a process
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is (deprecated|not supported):DeprecationWarning")
def test_compiled(tmp_path):
    settings = {"mixout": 0.5, "max_steps": 2}
    runs = [
        train(tmp_path, **settings, **compiled)
        for compiled in ({}, {"torch_compile": True, "torch_compile_backend": "eager"})
    ]
    torch.testing.assert_close(snapshot(runs[1].model), snapshot(runs[0].model), rtol=0, atol=1e-5)


def test_activation_checkpointing_draws_the_same_masks_again(tmp_path):
    names = {field.name for field in dataclasses.fields(arguments(tmp_path))}
    name = "activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing"
    runs = [
        train(tmp_path, mixout=0.5, **extra) for extra in ({}, {name: True, f"{name}_kwargs": {"use_reentrant": False}})
    ]
    torch.testing.assert_close(snapshot(runs[1].model), snapshot(runs[0].model), rtol=0, atol=1e-5)


def test_refuses(tmp_path):
    for wrong in (0.0, 1.0, -0.5, float("nan"), "0.5", True):
        with pytest.raises(ValueError, match="mixout is"):
            Mixout(wrong)
    with pytest.raises(ValueError, match="Did you mean 'parameter'"):
        Mixout(0.5, mask="parameters")
    with pytest.raises(ValueError, match="GPT2Block has none"):
        begin(TINY_MODELS["gpt2"](), tmp_path, Mixout(0.5))
    args = arguments(tmp_path)
    args.fsdp = True
    with pytest.raises(ValueError, match="fsdp shards them"):
        Mixout(0.5).check(args, LayerMap.from_model(tiny_bert()))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_are_refused(tmp_path):
    model = peft.get_peft_model(tiny_bert(), peft.LoraConfig(r=2, target_modules=["query", "value"]))
    with pytest.raises(ValueError, match="PEFT freezes them"):
        StrategyTrainer(model, arguments(tmp_path, mixout=0.5), train_dataset=rows())
