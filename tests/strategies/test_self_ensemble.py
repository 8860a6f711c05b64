from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertForSequenceClassification, TrainerCallback

from hf_ftstrategies import SelfEnsemble, StrategyTrainer
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

COMPOSED = {
    "layer_decay": 0.9,
    "lr_schedule": "slanted_triangular",
    "reinit_layers": 1,
    "unfreezing": "gradual",
    "unfreeze_every": "2",
    "gradient_accumulation_steps": 2,
    "per_device_train_batch_size": 2,
    "self_distillation": "sda",
    "teacher_size": 2,
}
MODES = {
    "se": {"self_ensemble": "se"},
    "se, second half": {"self_ensemble": "se", "ensemble_start": 0.5},
    "ema": {"self_ensemble": "ema"},
    "ema, since step 5": {"self_ensemble": "ema", "ensemble_start": 5},
    "last 3": {"self_ensemble": "last_k", "ensemble_size": 3},
    "last 11": {"self_ensemble": "last_k", "ensemble_size": 11},
}
BEST = {
    "best 2": {"self_ensemble": "best_k", "ensemble_size": 2},
    "best 2, in bfloat16": {"self_ensemble": "best_k", "ensemble_size": 2, "copy_storage": "bfloat16"},
    "last 3, in bfloat16": {"self_ensemble": "last_k", "ensemble_size": 3, "copy_storage": "bfloat16"},
}
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
each_mode_and_best = pytest.mark.parametrize("mode", [*MODES.values(), *BEST.values()], ids=[*MODES, *BEST])


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


class Record(TrainerCallback):
    """The student and the average after every step, by step."""

    def __init__(self):
        self.students, self.averages = {}, {}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.students[state.global_step] = snapshot(model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.students[state.global_step] = snapshot(model)
        weights = self.ensemble.evaluated_weights()
        self.averages[state.global_step] = snapshot(model) | {n: w.clone() for n, w in weights.items()}


def make(folder, model=None, callbacks=(), evaluation=None, **settings):
    """A trainer of 12 steps with its record."""
    record = Record()
    trainer = StrategyTrainer(
        tiny_bert() if model is None else model,
        arguments(folder, **{"num_train_epochs": 2, **settings}),
        train_dataset=rows(),
        eval_dataset=rows(8, seed=1) if evaluation is None else evaluation,
        compute_metrics=accuracy,
        callbacks=[*callbacks],
    )
    found = [strategy for strategy in trainer.strategies if isinstance(strategy, SelfEnsemble)]
    if found:
        (record.ensemble,) = found
        trainer.add_callback(record)
    return trainer, record


def train(*args, resume=None, **settings):
    trainer, record = make(*args, **settings)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, record


def logged(trainer, key):
    return [log[key] for log in trainer.state.log_history if key in log]


# --- What the average is ---


@each_mode
@pytest.mark.parametrize("extra", [{}, COMPOSED], ids=["plain", "composed"])
def test_average_of_the_students(tmp_path, mode, extra):
    _, record = train(tmp_path, **mode, **extra)
    start = {0.5: 6, 5: 5}.get(mode.get("ensemble_start"), 0)
    size = mode.get("ensemble_size", 99)
    for step in range(1, 13):
        past = [record.students[k] for k in range(start + 1, step + 1)][-size:]
        decay = min(0.995, (1 + step - start) / (10 + step - start))
        for name, found in record.averages[step].items():
            student = record.students[step][name].double()
            if step <= start:
                assert torch.equal(found, record.students[step][name])
            elif mode["self_ensemble"] != "ema":
                mean = torch.stack([one[name].double() for one in past]).mean(0)
                torch.testing.assert_close(found.double(), mean, rtol=0, atol=1e-6)
            else:
                before = record.averages.get(step - 1, record.students[0])[name].double()
                torch.testing.assert_close(found.double(), decay * before + (1 - decay) * student, rtol=0, atol=1e-6)


@pytest.mark.parametrize("metric", ["score", "eval_ensemble_score"])
@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_average_of_the_best(tmp_path, metric, higher, size):
    """Evaluated after every second step, from the fifth on; of equal scores the older student stays."""
    scores = {2: 9.0, 4: 0.0, 6: 3.0, 8: 5.0, 10: 3.0, 12: 4.0}
    settings = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": metric, "ensemble_start": 4}
    trainer, record = make(tmp_path, self_ensemble="best_k", ensemble_size=size, greater_is_better=higher, **settings)
    trainer.compute_metrics = lambda prediction: {"score": scores[trainer.state.global_step]}
    trainer.train()
    order = sorted((6, 8, 10, 12), key=lambda step: (-scores[step] if higher else scores[step], step))
    best = [record.students[step] for step in order[:size]]
    for name, found in snapshot(trainer.model).items():
        mean = torch.stack([student[name].double() for student in best]).mean(0)
        torch.testing.assert_close(found.double(), mean, rtol=0, atol=1e-6)
    assert record.ensemble.final_weights == "ensemble"


def test_the_best_of_no_evaluation_is_the_student(tmp_path):
    trainer, record = train(tmp_path, eval_strategy="epoch", eval_delay=99, **BEST["best 2"])
    assert equal(snapshot(trainer.model), record.students[12])
    assert record.ensemble.final_weights == "student"


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 12, **COMPOSED}


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The last checkpoint of a training without ensemble."""
    folder = tmp_path_factory.mktemp("without")
    train(folder, **EVALUATED)
    return folder / "checkpoint-12"


@each_mode_and_best
def test_the_training_is_not_touched(tmp_path, without, mode):
    """Neither the student nor the random streams, though the evaluations are twice as many."""
    train(tmp_path, **{**mode, "copy_storage": "device"}, **EVALUATED)  # the teacher's copies would be rounded too
    checkpoint = tmp_path / "checkpoint-12"
    assert equal(load_file(without / "model.safetensors"), load_file(checkpoint / "model.safetensors"))
    assert (without / "rng_state.pth").read_bytes() == (checkpoint / "rng_state.pth").read_bytes()


def test_a_skipped_step_makes_no_student():
    model, strategy = tiny_bert(), SelfEnsemble()
    strategy.layer_map = object()
    strategy.on_train_begin(None, SimpleNamespace(global_step=0, max_steps=9), None, model=model)
    for step, skipped in enumerate((False, True, False)):
        strategy.on_pre_optimizer_step(None, SimpleNamespace(global_step=step), None)
        optimizer = SimpleNamespace(step_was_skipped=skipped)
        strategy.on_step_end(None, SimpleNamespace(global_step=step + 1), None, optimizer=optimizer)
    assert strategy._average.count == 2


# --- What is evaluated, kept, and given back ---


@each_mode
def test_both_are_evaluated_and_the_average_is_what_remains(tmp_path, mode):
    saved = {"save_strategy": "steps", "save_steps": 12}
    trainer, record = train(tmp_path, eval_strategy="epoch", **saved, **mode)
    assert equal(snapshot(trainer.model), record.averages[12])
    assert record.ensemble.final_weights == "ensemble"
    last = trainer.state.log_history
    student, average = (
        next(log for log in reversed(last) if key in log) for key in ("eval_loss", "eval_ensemble_loss")
    )
    assert student["step"] == average["step"] == 12
    found = trainer.evaluate()
    assert found["eval_loss"] == average["eval_ensemble_loss"] != student["eval_loss"]
    assert "eval_ensemble_loss" not in found
    assert equal(load_file(tmp_path / "checkpoint-12" / "model.safetensors"), record.students[12])
    tensors = load_file(tmp_path / "checkpoint-12" / "strategies.safetensors")
    key = "self_ensemble/mean.0.0.classifier.weight"
    assert torch.equal(tensors[key], record.averages[12]["classifier.weight"])


def test_until_its_start_the_average_is_the_student(tmp_path):
    trainer, _ = train(tmp_path, eval_strategy="steps", eval_steps=2, eval_on_start=True, **MODES["se, second half"])
    student, average = (logged(trainer, f"eval_{key}") for key in ("loss", "ensemble_loss"))
    assert len(student) == 7
    assert [a == b for a, b in zip(student, average)] == [True] * 4 + [False] * 3


@each_mode
@pytest.mark.parametrize("metric", ["loss", "ensemble_loss", "eval_ensemble_accuracy"])
def test_the_metric_chooses_between_student_and_average(tmp_path, mode, metric):
    trainer, record = train(
        tmp_path,
        evaluations=4,
        save_strategy="steps",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        learning_rate=5e-2,
        **mode,
    )
    key = metric if metric.startswith("eval_") else f"eval_{metric}"
    values = logged(trainer, key)
    best = (min if "loss" in key else max)(range(4), key=lambda i: (values[i], i) if "loss" in key else (values[i], -i))
    step = 3 * (best + 1)
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{step}")
    chosen = record.averages if "ensemble" in metric else record.students
    assert equal(snapshot(trainer.model), chosen[step])
    assert record.ensemble.final_weights == ("ensemble" if "ensemble" in metric else "student")


def test_of_several_sets_each_is_evaluated_with_both(tmp_path):
    trainer, _ = train(
        tmp_path,
        evaluation={"a": rows(8), "b": rows(8, seed=1)},
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="b_ensemble_loss",
        self_ensemble="se",
    )
    for name in ("a", "b"):
        assert len(logged(trainer, f"eval_{name}_loss")) == len(logged(trainer, f"eval_{name}_ensemble_loss")) == 2
    assert not logged(trainer, "eval_ensemble_loss") + logged(trainer, "eval_ensemble_b_loss")
    assert trainer.state.best_metric == min(logged(trainer, "eval_b_ensemble_loss"))
    assert trainer.strategies[0].final_weights == "ensemble"


def test_early_stopping_looks_at_the_metric_it_was_given(tmp_path):
    settings = {"evaluations": 6, "early_stopping_patience": 1, "learning_rate": 0.0, "self_ensemble": "se"}
    for metric in ("loss", "ensemble_loss"):
        trainer, _ = train(tmp_path, metric_for_best_model=metric, **settings)
        assert trainer.state.global_step == 4  # nothing moves: the second evaluation is no better


@each_mode_and_best
def test_resumes_to_equal_bits(tmp_path, mode):
    cut = 5  # within a phase of unfreezing, and before the start in the second half
    settings = {**COMPOSED, **mode, "eval_strategy": "steps", "eval_steps": 4}
    saved = {"save_strategy": "steps", "save_steps": cut}
    straight, _ = train(tmp_path / "straight", loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", loaded_bert(tmp_path), [StopAt(cut)], **settings, **saved)
    resumed, _ = train(tmp_path / "cut", loaded_bert(tmp_path), resume=True, **settings, **saved)
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    assert logged(straight, "eval_ensemble_loss")[-1] == logged(resumed, "eval_ensemble_loss")[-1]


def test_after_an_interrupt_the_model_is_the_student(tmp_path):
    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise KeyboardInterrupt

    trainer, record = make(tmp_path, self_ensemble="se")
    trainer.add_callback(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert equal(snapshot(trainer.model), record.students[5])
    assert record.ensemble.final_weights is None
    assert "eval_ensemble_loss" not in trainer.evaluate()


# --- What is refused ---


class WithBatchNorm(BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.norm = nn.BatchNorm1d(config.hidden_size)


def test_batch_normalisation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the model has 1 BatchNorm1d modules"):
        make(tmp_path, WithBatchNorm(tiny_bert().config), self_ensemble="se")


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="ensemble_start is 12, but the training has 12 steps"):
        train(tmp_path, self_ensemble="se", ensemble_start=12)
    with pytest.raises(ValueError, match="'best_k', but nothing is evaluated"):
        make(tmp_path, self_ensemble="best_k")
    best = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch", "save_only_model": True}
    with pytest.raises(ValueError, match="which save_only_model=True leaves out"):
        make(tmp_path, self_ensemble="se", metric_for_best_model="ensemble_loss", **best)
    make(tmp_path, self_ensemble="se", metric_for_best_model="loss", **best)
    with pytest.raises(ValueError, match=r"known are none, se, ema, last_k, best_k\. Did you mean 'last_k'"):
        SelfEnsemble("lastk")
    with pytest.raises(ValueError, match="ensemble_size is 0"):
        SelfEnsemble("last_k", size=0)
    for start in (-1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="ensemble_start is"):
            SelfEnsemble(start=start)


def test_describes_itself():
    assert SelfEnsemble(start=0.25).summary() == "self-ensemble: mean of all students since 25 % of the training"
    assert SelfEnsemble("last_k", 5, 100).summary() == "self-ensemble: mean of the last 5 since step 100"
    assert SelfEnsemble("best_k", 3).summary() == "self-ensemble: mean of the best 3"
    assert "size" not in SelfEnsemble("ema").settings()
