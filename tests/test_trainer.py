import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, Trainer

from hf_ftstrategies import (
    GradualUnfreezing,
    LayerwiseLearningRate,
    ReinitTopLayers,
    Strategy,
    StrategyTrainer,
    StrategyTrainerMixin,
)
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

COMPOSED = {
    "num_train_epochs": 5,
    "layer_decay": 0.9,
    "lr_schedule": "slanted_triangular",
    "reinit_layers": 1,
    "unfreezing": "gradual",
    "weight_decay": 0.1,
}


def train(folder, model=None, trainer=StrategyTrainer, data=None, resume=None, callbacks=None, **settings):
    own = {key: settings.pop(key) for key in ("strategies", "optimizer_cls_and_kwargs") if key in settings}
    trainer = trainer(
        tiny_bert() if model is None else model,
        arguments(folder, **settings),
        train_dataset=rows() if data is None else data,
        callbacks=callbacks,
        **own,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    return [(log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]


def test_without_strategies_it_is_trainer(tmp_path):
    runs = [
        train(tmp_path / cls.__name__, trainer=cls, save_strategy="epoch", num_train_epochs=2, weight_decay=0.1)
        for cls in (Trainer, StrategyTrainer)
    ]
    assert losses(runs[0]) == losses(runs[1])
    assert equal(snapshot(runs[0].model), snapshot(runs[1].model))
    files = [
        sorted(p.relative_to(r.args.output_dir) for p in (tmp_path / n).rglob("*"))
        for r, n in zip(runs, ("Trainer", "StrategyTrainer"))
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize("rows_in_all", [24, 23, 21])
def test_accumulated_micro_batches_weigh_every_example_alike(tmp_path, rows_in_all):
    """1 x 8 = 2 x 4 = 4 x 2, also where the last batch is uneven (23 = 8 + 8 + 4 + 3)."""
    settings = {"num_train_epochs": 2, "optim": "sgd", "train_sampling_strategy": "sequential"}
    runs = [
        train(
            tmp_path,
            model=tiny_bert(dropout=0.0),
            data=rows(rows_in_all),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            **settings,
        )
        for size in (8, 4, 2)
    ]
    for run in runs[1:]:
        assert torch.tensor(losses(run)) == pytest.approx(torch.tensor(losses(runs[0])), rel=1e-5)
        for name, weight in run.model.state_dict().items():
            assert torch.allclose(weight, runs[0].model.state_dict()[name], atol=1e-6)


def test_label_smoothing_accumulates_too(tmp_path):
    settings = {"label_smoothing_factor": 0.1, "train_sampling_strategy": "sequential"}
    runs = [
        train(
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            **{**settings, "model": tiny_bert(dropout=0.0)},
        )
        for size in (8, 4)
    ]
    assert torch.tensor(losses(runs[0])) == pytest.approx(torch.tensor(losses(runs[1])), rel=1e-5)


def test_fields_and_strategies_mean_the_same(tmp_path):
    fields = train(tmp_path, model=loaded_bert(tmp_path), **COMPOSED)
    objects = train(
        tmp_path,
        model=loaded_bert(tmp_path),
        **{k: COMPOSED[k] for k in ("num_train_epochs", "lr_schedule", "weight_decay")},
        strategies=[ReinitTopLayers(1), LayerwiseLearningRate(0.9), GradualUnfreezing("gradual")],
    )
    assert equal(snapshot(fields.model), snapshot(objects.model))


def test_a_strategy_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="layerwise_lr is there twice"):
        StrategyTrainer(tiny_bert(), arguments(tmp_path, layer_decay=0.9), strategies=[LayerwiseLearningRate()])


def test_bad_input_is_named(tmp_path):
    for wrong in (["layerwise_lr"], LayerwiseLearningRate(0.9), "layerwise_lr"):
        with pytest.raises(ValueError, match=r"strategies holds .*give a list"):
            StrategyTrainer(tiny_bert(), arguments(tmp_path), strategies=wrong)
    data = [{**row, "labels": row["labels"] + 5 * (i == 2)} for i, row in enumerate(rows())]
    with pytest.raises(ValueError, match=r"1 labels are outside 0 to 2 \([567] in row 2\)"):
        train(tmp_path, data=data)
    with pytest.raises(ValueError, match="is empty"):
        train(tmp_path, data=[])


@pytest.mark.parametrize("cut", [3, 6, 7, 13, 24])  # within phases, at their ends, in the last one
@pytest.mark.parametrize(
    "extra", [{}, {"bias_correction": False}, {"gradient_accumulation_steps": 2, "num_train_epochs": 10}]
)
def test_resumes_to_equal_bits(tmp_path, cut, extra):
    settings = {**COMPOSED, **extra, "save_strategy": "steps", "save_steps": 1}
    straight = train(tmp_path / "straight", model=loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", model=loaded_bert(tmp_path), callbacks=[StopAt(cut)], **settings)
    resumed = train(tmp_path / "cut", model=loaded_bert(tmp_path), resume=True, **settings)
    assert resumed.state.global_step == straight.state.global_step == 30
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    states = [run.optimizer.state_dict()["state"] for run in (straight, resumed)]
    assert states[0].keys() == states[1].keys()
    for key in states[0]:
        assert equal(states[0][key], states[1][key])
    assert losses(straight)[cut:] == losses(resumed)[cut:]


def test_resume_with_another_plan_shows_the_difference(tmp_path):
    settings = {**COMPOSED, "save_strategy": "steps", "save_steps": 3}
    train(tmp_path, callbacks=[StopAt(6)], **settings)
    with pytest.raises(ValueError, match=r"layerwise_lr\.decay: 0\.9 in the checkpoint, 0\.8 now"):
        train(tmp_path, resume=True, **{**settings, "layer_decay": 0.8})
    with pytest.raises(ValueError, match=r"strategies\.reinit: .* in the checkpoint, absent now"):
        train(tmp_path, resume=True, **{**settings, "reinit_layers": 0})
    with pytest.raises(ValueError, match=r"total_steps: 30 in the checkpoint, 36 now"):
        train(tmp_path, resume=True, **{**settings, "num_train_epochs": 6})


def test_an_earlier_training_is_not_overwritten(tmp_path):
    settings = {"layer_decay": 0.9, "save_strategy": "steps", "save_steps": 3}
    trainer = train(tmp_path, **settings)
    with pytest.raises(ValueError, match="holds checkpoints of an earlier training"):
        train(tmp_path, **settings)
    trainer.train()  # its own, as with the stock Trainer


@pytest.mark.parametrize("settings", [{"lr_schedule": "slanted_triangular"}, {"bias_correction": False}])
def test_resume_from_a_plain_checkpoint_is_refused(tmp_path, settings):
    train(tmp_path, callbacks=[StopAt(3)], save_strategy="steps", save_steps=3)
    with pytest.raises(ValueError, match="saved without this plan"):
        train(tmp_path, resume=True, save_strategy="steps", save_steps=3, **settings)
    with pytest.raises(ValueError, match="no checkpoint folder 'nowhere'"):
        train(tmp_path, resume="nowhere", **settings)


def test_rates_of_a_schedule_that_looks_at_metrics(tmp_path):
    settings = {"layer_decay": 0.5, "lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}
    trainer = StrategyTrainer(
        tiny_bert(),
        arguments(tmp_path, metric_for_best_model="loss", **settings),
        train_dataset=rows(),
        eval_dataset=rows(8),
    )
    trainer.train()
    assert trainer.state.log_history[0]["learning_rate/embeddings"] == pytest.approx(1e-2 / 8)


def test_resume_without_or_from_without_strategies_is_refused(tmp_path):
    train(tmp_path / "with", callbacks=[StopAt(3)], layer_decay=0.9, save_strategy="steps", save_steps=3)
    with pytest.raises(ValueError, match="made by another plan"):
        train(tmp_path / "with", resume=True, save_strategy="steps", save_steps=3)
    train(tmp_path / "without", callbacks=[StopAt(3)], save_strategy="steps", save_steps=3)
    with pytest.raises(ValueError, match=r"strategies\.json"):
        train(tmp_path / "without", resume=True, layer_decay=0.9, save_strategy="steps", save_steps=3)


def test_checkpoint_is_a_stock_model(tmp_path):
    trainer = train(tmp_path, save_strategy="epoch", **COMPOSED)
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-30")
    assert equal(snapshot(stock), snapshot(trainer.model))
    assert not any(name.endswith(".pkl") for name in map(str, (tmp_path / "checkpoint-30").iterdir()))
    content = json.loads((tmp_path / "checkpoint-30" / "strategies.json").read_text())
    assert set(content["states"]) == {"reinit", "layerwise_lr", "unfreezing"}


def test_rates_are_logged_by_depth(tmp_path):
    trainer = train(tmp_path, layer_decay=0.5, unfreezing="last", lr_scheduler_type="constant")
    log = trainer.state.log_history[0]
    assert {k: v for k, v in log.items() if k.startswith("learning_rate")} == pytest.approx(
        {
            "learning_rate": 1e-2,
            "learning_rate/head": 1e-2,
            "learning_rate/block_3": 1e-2,
            "learning_rate/block_2": 0.0,
            "learning_rate/block_1": 0.0,
            "learning_rate/embeddings": 0.0,
        }
    )


def test_the_mixin_goes_before_a_users_trainer(tmp_path):
    class Doubled(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
            return (2 * loss, outputs) if return_outputs else 2 * loss

    class Mixed(StrategyTrainerMixin, Doubled):
        pass

    assert losses(train(tmp_path, trainer=Doubled)) == losses(train(tmp_path, trainer=Mixed))
    train(tmp_path, trainer=Mixed, **COMPOSED)


def test_a_trainer_with_groups_of_its_own_is_refused(tmp_path):
    class Own(StrategyTrainerMixin, Trainer):
        pass

    class Stubborn(Trainer):
        def create_optimizer(self, model=None):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return self.optimizer

    class Mixed(StrategyTrainerMixin, Stubborn):
        pass

    with pytest.raises(ValueError, match="ignores optimizer_cls_and_kwargs"):
        train(tmp_path, trainer=Mixed, layer_decay=0.9)
    train(tmp_path, trainer=Own, layer_decay=0.9, optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.1}))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    with pytest.raises(ValueError, match="optimizers="):
        StrategyTrainer(tiny_bert(), arguments(tmp_path, layer_decay=0.9), optimizers=(optimizer, None))


def test_a_loss_term_is_added_to_the_task_loss(tmp_path):
    class Constant(Strategy):
        name, paper = "constant", "none"

        def loss_term(self, model, inputs, outputs):
            assert inputs["labels"].shape == outputs.logits.shape[:1]
            return 3000 * outputs.logits.pow(2).mean()

    settings = {"max_steps": 1, "train_sampling_strategy": "sequential"}
    plain = train(tmp_path, model=tiny_bert(dropout=0.0), **settings)
    with_term = train(tmp_path, model=tiny_bert(dropout=0.0), strategies=[Constant()], **settings)
    logits = tiny_bert(dropout=0.0)(torch.stack([row["input_ids"] for row in rows()[:4]])).logits
    difference = losses(with_term)[0][0] - losses(plain)[0][0]
    assert difference == pytest.approx(3000 * logits.pow(2).mean().item(), rel=1e-4)


def test_state_of_strategies_takes_tensors_and_values(tmp_path):
    class Counter(Strategy):
        name, paper = "counter", "none"

        def __init__(self):
            self.total, self.sums = 0, torch.zeros(2)

        def on_step_end(self, args, state, control, **kwargs):
            self.total, self.sums = self.total + 1, self.sums + torch.tensor([1.0, 0.1])

        def state_dict(self):
            return {"total": self.total, "sums": self.sums}

        def load_state_dict(self, state):
            self.total, self.sums = state["total"], state["sums"]

    settings = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 1}
    straight, first, second = Counter(), Counter(), Counter()
    train(tmp_path / "a", strategies=[straight], **settings)
    train(tmp_path / "b", strategies=[first], callbacks=[StopAt(4)], **settings)
    train(tmp_path / "b", strategies=[second], resume=True, **settings)
    assert (second.total, first.total) == (straight.total, 4)
    assert torch.equal(second.sums, straight.sums)


def test_a_strategy_needs_a_trainer_that_calls_it(tmp_path):
    with pytest.raises(ValueError, match="does not call its adjust_groups"):
        train(tmp_path, trainer=Trainer, callbacks=[LayerwiseLearningRate(0.9)])


def test_model_init_is_prepared_too(tmp_path):
    model = loaded_bert(tmp_path)
    trainer = StrategyTrainer(
        model_init=lambda: loaded_bert(tmp_path),
        args=arguments(tmp_path, reinit_layers=3, learning_rate=1e-12),
        train_dataset=rows(),
    )
    trainer.train()
    new, old = (m.bert.encoder.layer[0].output.dense.weight for m in (trainer.model, model))
    assert (new - old).abs().max() > 1e-3


def test_plan_changes_nothing(tmp_path):
    planned = StrategyTrainer(loaded_bert(tmp_path), arguments(tmp_path, **COMPOSED), train_dataset=rows())
    before, stream = snapshot(planned.model), torch.get_rng_state()
    planned.plan()
    assert equal(before, snapshot(planned.model))
    assert torch.equal(stream, torch.get_rng_state())
    planned.train()
    assert equal(snapshot(planned.model), snapshot(train(tmp_path, model=loaded_bert(tmp_path), **COMPOSED).model))
