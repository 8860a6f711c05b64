import peft
import pytest
import torch
from transformers import Trainer, TrainerCallback

from hf_ftstrategies import LayerMap, PretrainedWeightDecay, StrategyTrainer
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

NO_DECAY = ("bias", "LayerNorm.weight")
HEAD = ("classifier.",)
COMPOSED = {
    "layer_decay": 0.9,
    "reinit_layers": 1,
    "unfreezing": "ulmfit",
    "unfreeze_every": "2",
    "weight_decay": 0.1,
}


class Record(TrainerCallback):
    """Weights before training and after each step, gradients and rates of each step."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.weights, self.grads, self.rates = [snapshot(model)], [], []

    def on_pre_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.grads.append({n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()})
        rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
        self.rates.append({n: rates[p] for n, p in model.named_parameters()})

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(snapshot(model))


def train(folder, model=None, resume=None, callbacks=None, **settings):
    own = {key: settings.pop(key) for key in ("strategies", "optimizer_cls_and_kwargs") if key in settings}
    trainer = StrategyTrainer(
        tiny_bert() if model is None else model,
        arguments(folder, **settings),
        train_dataset=rows(),
        callbacks=callbacks,
        **own,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def decays(name, head=False):
    return not name.endswith(NO_DECAY) and (head or not name.startswith(HEAD))


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_update_equation(tmp_path, optim, head):
    """Against AdamW in float64, of the recorded gradients, with the scheduled rate of each depth."""
    strength, record = 5.0, Record()
    settings = {"optim": optim, "layer_decay": 0.5, "lr_scheduler_type": "linear", "num_train_epochs": 2}
    strategy = PretrainedWeightDecay(strength, head=head)
    train(tmp_path, callbacks=[record], strategies=[strategy], weight_decay=0.3, **settings)
    assert len({*record.rates[3].values()}) == 4
    assert record.rates[0]["classifier.weight"] > record.rates[11]["classifier.weight"]
    for name, start in record.weights[0].items():
        p0 = start.double()
        p, m, v = p0.clone(), torch.zeros_like(p0), torch.zeros_like(p0)
        for t, (grads, rates) in enumerate(zip(record.grads, record.rates), 1):
            g, lr = grads[name].double(), rates[name]
            if decays(name, head):
                p = p - lr * strength * (p - p0)
            elif decays(name, head=True):
                p = p - lr * 0.3 * p  # weight decay goes on in the head
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            torch.testing.assert_close(record.weights[t][name].double(), p, rtol=0, atol=2e-6, msg=name)


def test_it_comes_before_the_update(tmp_path):
    """With plain gradient descent: p1 = p0 - lr g0, p2 = p1 - lr strength (p1 - p0) - lr g1, to the bit."""
    record = Record()
    sgd = (torch.optim.SGD, {"lr": 0.1})
    settings = {"learning_rate": 0.1, "lr_scheduler_type": "constant", "max_steps": 2, "optimizer_cls_and_kwargs": sgd}
    train(tmp_path, tiny_bert(dropout=0.0), callbacks=[record], pretrained_weight_decay=2.0, **settings)
    name = "bert.encoder.layer.1.output.dense.weight"
    p0, p1, p2 = (weights[name] for weights in record.weights)
    g0, g1 = (grads[name] for grads in record.grads)
    assert torch.equal(p1, p0.add(g0, alpha=-0.1))
    assert torch.equal(p2, torch.lerp(p1, p0, 0.2).add(g1, alpha=-0.1))


def groups(tmp_path, model=None, strategy=None, **settings):
    settings = {"weight_decay": 0.1, "layer_decay": 0.5, **settings}
    trainer = StrategyTrainer(
        tiny_bert() if model is None else model,
        arguments(tmp_path, **settings),
        train_dataset=rows(),
        strategies=[PretrainedWeightDecay(0.01) if strategy is None else strategy],
    )
    names = {p: n for n, p in trainer.model.named_parameters()}
    return [{**g, "params": [names[p] for p in g["params"]]} for g in trainer.create_optimizer().param_groups]


def test_only_the_head_decays_to_zero_too(tmp_path):
    found = {name: group for group in groups(tmp_path) for name in group["params"]}
    assert set(found) == {name for name, _ in tiny_bert().named_parameters()}
    assert {name for name, group in found.items() if group["weight_decay"]} == {"classifier.weight"}
    assert found["bert.pooler.dense.weight"]["lr"] == found["classifier.weight"]["lr"] == 1e-2


def test_groups_with_the_head_are_not_cut(tmp_path):
    found = groups(tmp_path, strategy=PretrainedWeightDecay(0.01, head=True))
    assert [(g["depth"], g["weight_decay"]) for g in found] == [(d, 0.0) for d in (4, 4, 3, 3, 2, 2, 1, 1, 0, 0)]
    assert groups(tmp_path)[0]["params"] == ["classifier.weight"]  # the first group's rate is the logged one


def test_parameters_frozen_by_the_user_stay(tmp_path):
    model = tiny_bert()
    model.bert.encoder.layer[0].requires_grad_(False)
    before = snapshot(model.bert.encoder.layer[0])
    train(tmp_path, model, pretrained_weight_decay=10.0, num_train_epochs=2)
    assert equal(before, snapshot(model.bert.encoder.layer[0]))


def test_frozen_phases_do_not_decay(tmp_path):
    """Chain-thaw freezes layers that have moved: these must not move back meanwhile."""
    record = Record()
    settings = {"unfreezing": "chain_thaw", "unfreeze_every": "2", "num_train_epochs": 2}
    train(tmp_path, callbacks=[record], pretrained_weight_decay=10.0, **settings)
    depth_of = LayerMap.from_model(tiny_bert()).depth_of
    moved = [
        {depth_of(n) for n in before if not torch.equal(before[n], after[n])}
        for before, after in zip(record.weights, record.weights[1:])
    ]
    assert moved == [{d} for d in (4, 4, 0, 0, 1, 1, 2, 2, 3, 3)] + [{0, 1, 2, 3, 4}] * 2


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_fp16_scaler_skips_does_not_decay(fused):
    class Wrapped:  # as accelerate wraps it
        optimizer = None

    strategy, weight = PretrainedWeightDecay(2.0), torch.nn.Parameter(torch.ones(2))
    strategy.layer_map, strategy._decaying = object(), {"w": weight}
    Wrapped.optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0, fused=fused)
    state = type("State", (), {"global_step": 0})
    strategy.on_train_begin(None, state, None, optimizer=Wrapped)
    weight.data.fill_(2.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    for value, expected in ((float("inf"), 2.0), (0.0, 1.8)):
        weight.grad = torch.full((2,), value)
        scaler.scale(torch.ones(()))
        scaler.step(Wrapped.optimizer)
        scaler.update()
        torch.testing.assert_close(weight.detach(), torch.full((2,), expected))
    strategy.on_train_end(None, state, None)
    weight.grad = torch.zeros(2)
    Wrapped.optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2,), 1.8))  # the hook is gone


@pytest.mark.parametrize("cut", [1, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"bias_correction": False, "gradient_accumulation_steps": 2}, COMPOSED, {"copy_storage": "bfloat16"}],
)
def test_resumes_to_equal_bits(tmp_path, cut, settings):
    epochs = settings.get("gradient_accumulation_steps", 1)
    settings = {"pretrained_weight_decay": 1.0, "save_strategy": "steps", "save_steps": 1, **settings}
    settings["num_train_epochs"] = epochs
    straight = train(tmp_path / "straight", loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", loaded_bert(tmp_path), callbacks=[StopAt(cut)], **settings)
    resumed = train(tmp_path / "cut", loaded_bert(tmp_path), resume=True, **settings)
    assert resumed.state.global_step == straight.state.global_step == 6
    assert equal(snapshot(straight.model), snapshot(resumed.model))


def test_in_bfloat16_weights_decay_to_their_rounded_start(tmp_path):
    record = Record()
    strategy = PretrainedWeightDecay(1e3, storage="bfloat16")
    train(tmp_path, callbacks=[record], strategies=[strategy], learning_rate=1e-3, lr_scheduler_type="constant")
    start, moved = record.weights[0], 0
    for name, weight in record.weights[-1].items():
        if decays(name):
            # the rest of the way is that of one update of Adam
            torch.testing.assert_close(weight, start[name].to(torch.bfloat16).float(), rtol=0, atol=1.01e-3)
            moved += 1
    assert moved > 10


def test_decays_to_the_weights_after_reinit(tmp_path):
    """So strongly that nothing leaves them far."""
    record = Record()
    settings = {"learning_rate": 1e-3, "pretrained_weight_decay": 1000.0, "reinit_layers": 2}
    train(tmp_path / "out", loaded_bert(tmp_path), callbacks=[record], num_train_epochs=3, **settings)
    for name, start in record.weights[0].items():
        if decays(name):
            assert (record.weights[-1][name] - start).abs().max() < 2e-3, name


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:Could not find a config file in  - will assume:UserWarning")
def test_adapters_decay_to_their_start(tmp_path):
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=["classifier"])
    strategy = PretrainedWeightDecay(1.0)
    trainer = train(tmp_path, peft.get_peft_model(tiny_bert(), config), strategies=[strategy])
    assert trainer.state.global_step == 6
    assert {name.split(".lora_")[-1][0] for name in strategy._decaying} == {"A", "B"}


def test_a_stock_trainer_is_refused(tmp_path):
    trainer = Trainer(tiny_bert(), arguments(tmp_path), train_dataset=rows(), callbacks=[PretrainedWeightDecay(0.1)])
    with pytest.raises(ValueError, match="does not call its adjust_groups"):
        trainer.train()


def test_refuses(tmp_path):
    for wrong in (0.0, -1.0, float("nan"), float("inf"), "0.1"):
        with pytest.raises(ValueError, match="pretrained_weight_decay is"):
            PretrainedWeightDecay(wrong)
    model = tiny_bert()
    model.bert.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing decays"):
        train(tmp_path, model, pretrained_weight_decay=0.1)
    args = arguments(tmp_path)
    args.deepspeed = "zero3.json"
    with pytest.raises(ValueError, match="deepspeed shards them"):
        PretrainedWeightDecay(0.1).check(args, LayerMap.from_model(tiny_bert()))
