import pytest
import torch
from transformers import Trainer, TrainerCallback

from hf_ftstrategies import LayerDistance, LayerMap, StrategyTrainer
from hf_ftstrategies.strategies.layer_distance import bias_ratio
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

COMPOSED = {
    "layer_decay": 0.9,
    "reinit_layers": 1,
    "unfreezing": "ulmfit",
    "unfreeze_every": "2",
    "mixout": 0.3,
    "pretrained_weight_decay": 0.1,
}
KEYS = ["embeddings", "block_1", "block_2", "block_3", "head"]


class Record(TrainerCallback):
    """Weights before training and after each step; what the other callbacks see in the log."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.weights, self.logged = [snapshot(model)], []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(snapshot(model))

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logged.append(dict(logs))


def train(folder, model=None, resume=None, callbacks=None, **settings):
    trainer = StrategyTrainer(
        tiny_bert() if model is None else model,
        arguments(folder, **{"log_layer_distance": True, **settings}),
        train_dataset=rows(),
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def measured(trainer):
    logs = [log for log in trainer.state.log_history if "layer_distance/head" in log]
    return [(log["step"], {k: v for k, v in log.items() if k.startswith(("layer_", "adam_"))}) for log in logs]


@pytest.mark.parametrize(("logging_steps", "steps"), [(1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6]), (4, [4])])
def test_what_is_logged(tmp_path, logging_steps, steps):
    record = Record()
    trainer = train(tmp_path, callbacks=[record], logging_steps=logging_steps)
    found, depth_of = measured(trainer), LayerMap.from_model(tiny_bert()).depth_of

    def norm(weights, depth):
        return torch.cat([w.double().flatten() for n, w in weights.items() if depth_of(n) == depth]).norm().item()

    assert [step for step, _ in found] == steps
    last = 0
    for step, values in found:
        now = record.weights[step]
        moved = [{n: now[n].double() - record.weights[before][n].double() for n in now} for before in (0, last)]
        expected = {f"layer_distance/{key}": norm(moved[0], depth) for depth, key in enumerate(KEYS)}
        expected |= {f"layer_update/{key}": norm(moved[1], d) / norm(now, d) for d, key in enumerate(KEYS)}
        expected["adam_bias_ratio"] = (1 - 0.9**step) / (1 - 0.999**step) ** 0.5
        assert values == pytest.approx(expected, rel=1e-5)
        assert list(values) == list(expected)
        last = step
    assert [{k: v for k, v in log.items() if k in found[0][1]} for log in record.logged if "loss" in log] == [
        values for _, values in found
    ]


def test_bias_ratio():
    """Figure 1 of Zhang et al. 2021."""
    ratios = [bias_ratio(step) for step in range(1, 20001)]
    assert ratios[0] == pytest.approx(0.1 / 0.001**0.5)
    assert (max(ratios), ratios.index(max(ratios)) + 1) == (pytest.approx(6.57, abs=5e-3), 12)
    assert (ratios[99], ratios[999]) == pytest.approx((3.24, 1.26), abs=5e-3)
    assert ratios[-1] == pytest.approx(1)


def test_it_changes_nothing(tmp_path):
    runs = [train(tmp_path, log_layer_distance=on) for on in (False, True)]
    assert equal(snapshot(runs[0].model), snapshot(runs[1].model))
    assert measured(runs[0]) == []


def test_frozen_layers_do_not_move(tmp_path):
    values = dict(measured(train(tmp_path, unfreezing="ulmfit", unfreeze_every="2")))
    still = [[key for key in KEYS if values[step][f"layer_update/{key}"] == 0] for step in range(1, 7)]
    assert still == [KEYS[:4]] * 2 + [KEYS[:3]] * 2 + [[]] * 2


def test_only_what_trains_is_measured(tmp_path):
    model = tiny_bert()
    model.bert.embeddings.requires_grad_(False)
    model.bert.encoder.layer[0].requires_grad_(False)
    values = measured(train(tmp_path, model, optim="sgd"))[-1][1]
    assert list(values) == [f"layer_{what}/{key}" for what in ("distance", "update") for key in KEYS[2:]]


@pytest.mark.parametrize("cut", [2, 3])  # with a log at the checkpoint, and without
@pytest.mark.parametrize("settings", [{"logging_steps": 2}, {"logging_steps": 1, **COMPOSED}])
def test_resumes_to_equal_bits_and_logs(tmp_path, cut, settings):
    settings = {"save_strategy": "steps", "save_steps": 1, **settings}
    straight = train(tmp_path / "straight", loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", loaded_bert(tmp_path), callbacks=[StopAt(cut)], **settings)
    resumed = train(tmp_path / "cut", loaded_bert(tmp_path), resume=True, **settings)
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    assert measured(resumed) == measured(straight)


def test_distances_begin_after_reinit(tmp_path):
    values = measured(train(tmp_path / "out", loaded_bert(tmp_path), reinit_layers=3, learning_rate=1e-8))[0][1]
    assert values["layer_distance/block_3"] < 1e-5


def test_a_stock_trainer_is_refused(tmp_path):
    trainer = Trainer(tiny_bert(), arguments(tmp_path), train_dataset=rows(), callbacks=[LayerDistance()])
    with pytest.raises(ValueError, match="does not call its training_logs"):
        trainer.train()


def test_refuses_sharded_weights(tmp_path):
    args = arguments(tmp_path)
    args.fsdp = True
    with pytest.raises(ValueError, match=r"log_layer_distance keeps a copy .* fsdp shards them"):
        LayerDistance().check(args, LayerMap.from_model(tiny_bert()))
