"""What Transformers' own tests ask of `Trainer`, asked of `StrategyTrainer` without strategies: the same to the bit.

Each case is run twice, by `Trainer` with `TrainingArguments` and by `StrategyTrainer` with `StrategyTrainingArguments`;
weights, optimizer, log history, files, the order of data and callbacks, and what the run returns are compared.
The one exception is the loss of encoders under gradient accumulation, at the end of this file.
"""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import EarlyStoppingCallback, Trainer

from hf_ftstrategies import StrategyTrainer, StrategyTrainerMixin
from tests.data.tiny import bert
from tests.promises import (
    BEST,
    EVALUATED,
    FIELDS,
    LENGTHS,
    Bag,
    Flags,
    Items,
    Recorder,
    Stream,
    accuracy,
    averaging,
    both,
    difference,
    frozen_bert,
    gpt2,
    language,
    llama,
    lora,
    losses,
    padded,
    regression,
    run,
    sgd,
    summed_loss,
    texts,
    without_times,
)
from tests.tiny import LABELS, VOCAB, rows, tiny_bert

# peft.get_peft_model reads the old name
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

CHECKPOINTING = next(n for n in ("activation_checkpointing", "gradient_checkpointing") if n in FIELDS)

# --- Training ---

TRAINING = {
    "epochs and checkpoints": {"num_train_epochs": 2, "save_strategy": "epoch", "weight_decay": 0.1},
    "last batch dropped": {"dataloader_drop_last": True, "num_train_epochs": 2},
    "more steps than an epoch": {"max_steps": 8, "save_strategy": "steps", "save_steps": 3},
    "part of an epoch": {"num_train_epochs": 1.4},
    "logging every other step": {"logging_steps": 2, "logging_first_step": True},
    "logging by share": {"logging_steps": 0.5},
    "logging by epoch": {"logging_strategy": "epoch", "num_train_epochs": 2},
    "no logging": {"logging_strategy": "no"},
    "tokens counted": {"include_num_input_tokens_seen": "non_padding"},
    "another seed": {"seed": 1},
    "another order": {"data_seed": 7},
    "in order": {"train_sampling_strategy": "sequential"},
    "rotation": {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 2},
    "weights only": {"save_strategy": "steps", "save_steps": 3, "save_only_model": True},
    "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 0.3},
    "cosine to a floor": {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.2}},
    "plateau": {**EVALUATED, "lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss"},
    "sgd": {"optim": "sgd"},
    "adafactor": {"optim": "adafactor"},
    "adamw without fusing": {"optim": "adamw_torch", "adam_beta2": 0.9, "adam_epsilon": 1e-6},
    "own optimizer class": {"optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})},
    "own optimizer": {"optimizers": sgd},
    "clipped": {"max_grad_norm": 0.01},
    "not clipped": {"max_grad_norm": 0.0},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "own loss": {"compute_loss_func": summed_loss},
    "noise on embeddings": {"neftune_noise_alpha": 5.0},
    "activations recomputed": {CHECKPOINTING: True},
    "bfloat16": {"bf16": True},
    "a worker": {"dataloader_num_workers": 1, "max_steps": 2},
    "frozen": {"model": frozen_bert},
    "with tokenizer": {"processing_class": bert(), "save_strategy": "epoch"},
    "model_init": {"model_init": lambda: tiny_bert()},
    "no pre-trained model": {"model": Bag, "save_strategy": "epoch"},
    "tuples": {"model": lambda: Bag(as_tuple=True)},
    "peft": {"model": lora, "save_strategy": "epoch"},
    "regression": {
        "model": lambda: tiny_bert(num_labels=1),
        "train_dataset": regression(22),
        "eval_dataset": regression(10, seed=1),
    },
    "language model": {"model": gpt2, "train_dataset": language(), "eval_dataset": language(10, seed=1)},
    "stream": {"train_dataset": Stream(), "max_steps": 8},
    "map-style data": {"train_dataset": Items()},
    "unused columns": {"train_dataset": texts(), **padded()},
    "by length": LENGTHS,
    "flags of callbacks": {"callbacks": lambda: [Flags()], "logging_strategy": "no", "num_train_epochs": 2},
    "accumulation, own loss": {"gradient_accumulation_steps": 2, "compute_loss_func": summed_loss},
    "accumulation, language model": {"gradient_accumulation_steps": 3, "model": gpt2, "train_dataset": language()},
    "accumulation, causal": {"gradient_accumulation_steps": 3, "model": llama, "train_dataset": language()},
    "accumulation, mean declared": {"gradient_accumulation_steps": 2, "model": averaging, "train_dataset": rows(24)},
}


@pytest.mark.parametrize("case", TRAINING.values(), ids=TRAINING)
def test_training(tmp_path, case):
    result = both(tmp_path, **case)
    assert result["order"] or "dataloader_num_workers" in case  # a worker's notes stay there
    assert result["events"][0][0] == "on_init_end"
    assert {"on_train_begin", "on_step_end", "on_train_end"} <= {event[0] for event in result["events"]}


def test_the_cases_do_what_they_say(tmp_path):
    """The comparison above would also hold between two trainers that both ignore a setting."""

    def of(name):
        return both(tmp_path / name.replace(" ", "_"), **TRAINING[name])

    plain = both(tmp_path / "plain")
    assert [len(ids) for ids in plain["order"]] == [4, 4, 4, 4, 4, 2]
    assert [len(ids) for ids in of("last batch dropped")["order"]] == [4] * 10
    assert of("more steps than an epoch")["output"][0] == 8
    assert of("part of an epoch")["output"][0] == math.ceil(1.4 * 6)
    steps = [entry["step"] for entry in of("logging every other step")["history"]]
    assert steps == [1, 2, 4, 6, 6]
    assert list(plain["history"][0]) == ["loss", "grad_norm", "learning_rate", "epoch", "step"]
    found = {Path(name).parts[0] for name in of("rotation")["files"]}
    assert found == {"checkpoint-5", "checkpoint-6"}
    assert not any("optimizer" in name for name in of("weights only")["files"])
    assert "checkpoint-6/tokenizer.json" in of("with tokenizer")["files"]
    for name in ("another seed", "another order", "noise on embeddings", "label smoothing", "clipped", "cosine"):
        assert losses(of(name))[1:] != losses(plain)[1:]
    weights = of("frozen")["weights"]
    assert [name for name in weights if not torch.equal(weights[name], tiny_bert().state_dict()[name])] == [
        "classifier.weight",
        "classifier.bias",
    ]


@pytest.mark.parametrize("case", ["epochs and checkpoints", "accumulation, own loss"])
def test_stock_arguments_and_mixins_too(tmp_path, case):
    class Plain(StrategyTrainer):
        """`StrategyTrainer` with `TrainingArguments`."""

    class Mixed(StrategyTrainerMixin, Trainer):
        pass

    for number, trainer in enumerate((Plain, Mixed)):
        both(tmp_path / str(number), trainers=(Trainer, trainer), **TRAINING[case])


def test_trained_twice(tmp_path):
    """A second `train` starts the schedule again, on the weights of the first."""

    def again(trainer):
        trainer.train()
        return [without_times(entry) for entry in trainer.state.log_history]

    result = both(tmp_path, then=again)
    assert [entry["step"] for entry in result["returned"]] == [1, 2, 3, 4, 5, 6, 6]


def test_a_smaller_batch_after_running_out_of_memory(tmp_path):
    def refuse(module, args, kwargs):
        if len(kwargs["input_ids"]) > 2:
            raise RuntimeError("CUDA out of memory.")

    def model():
        small = tiny_bert()
        small.register_forward_pre_hook(refuse, with_kwargs=True)
        return small

    result = both(tmp_path, model=model, auto_find_batch_size=True, max_steps=3)
    assert {len(ids) for ids in result["order"][-3:]} <= {1, 2}


@pytest.mark.parametrize("keep", [True, False])
def test_a_loss_that_is_not_a_number_is_left_out_of_the_log(tmp_path, keep):
    def loss(outputs, labels, num_items_in_batch=None):
        value = nn.functional.cross_entropy(outputs.logits, labels)
        return value * float("nan") if loss_calls.pop() else value

    loss_calls = [step in (2, 8) for step in range(12)][::-1]  # the third step of both runs
    result = both(tmp_path, compute_loss_func=loss, logging_nan_inf_filter=not keep, optim="sgd", learning_rate=0.0)
    assert math.isnan(losses(result)[2]) == keep


# --- Evaluation and prediction ---

EVALUATION = {
    "each epoch": {**EVALUATED, "compute_metrics": accuracy},
    "by steps, later": {"eval_strategy": "steps", "eval_steps": 2, "eval_delay": 3},
    "before training": {"eval_on_start": True},
    "best model": {**BEST, "compute_metrics": accuracy, "metric_for_best_model": "accuracy", "learning_rate": 0.1},
    "best loss": {**BEST, "metric_for_best_model": "loss", "greater_is_better": False, "learning_rate": 0.1},
    "saved when best": {**EVALUATED, "save_strategy": "best", "metric_for_best_model": "loss"},
    "stopped early": {
        **BEST,
        "metric_for_best_model": "loss",
        "learning_rate": 1e-9,
        "callbacks": lambda: [EarlyStoppingCallback(1)],
    },
    "several sets": {
        **BEST,
        "eval_dataset": {"near": rows(10, seed=1), "far": rows(7, seed=2)},
        "metric_for_best_model": "eval_far_loss",
    },
    "inputs and losses for metrics": {
        "eval_strategy": "epoch",
        "include_for_metrics": ["inputs", "loss"],
        "compute_metrics": lambda p: {"inputs": int(p.inputs.sum()), "losses": float(p.losses.mean())},
    },
    "metrics by batch": {
        "eval_strategy": "epoch",
        "batch_eval_metrics": True,
        "compute_metrics": lambda p, compute_result: accuracy(
            type(p)(p.predictions.numpy(), p.label_ids.numpy()),
        ),
    },
    "moved to the CPU": {"eval_strategy": "epoch", "eval_accumulation_steps": 1, "compute_metrics": accuracy},
    "losses only": {"eval_strategy": "epoch", "prediction_loss_only": True, "compute_metrics": accuracy},
    "smaller logits": {
        "eval_strategy": "epoch",
        "preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1),
        "compute_metrics": lambda p: {"shape": len(p.predictions.shape)},
    },
    "label smoothing": {"eval_strategy": "epoch", "label_smoothing_factor": 0.2},
    "own loss": {"eval_strategy": "epoch", "compute_loss_func": summed_loss},
    "accumulation": {"eval_strategy": "epoch", "gradient_accumulation_steps": 3, "trained": False},
}


def evaluate_and_predict(trainer):
    """What `evaluate` and `predict` return, on data with and without labels and an uneven last batch."""
    unlabelled = [{"input_ids": row["input_ids"]} for row in rows(9, seed=3)]
    outputs = [trainer.predict(rows(13, seed=3), metric_key_prefix="test"), trainer.predict(unlabelled)]
    return {
        "evaluate": without_times(trainer.evaluate()),
        "other": without_times(trainer.evaluate(rows(5, seed=4), metric_key_prefix="other")),
        "predict": [(o.predictions, o.label_ids, without_times(o.metrics)) for o in outputs],
    }


@pytest.mark.parametrize("case", EVALUATION.values(), ids=EVALUATION)
def test_evaluation(tmp_path, case):
    own = case.get("compute_metrics")
    then = None if own not in (None, accuracy) else evaluate_and_predict
    result = both(tmp_path, **case, then=then)
    if then is not None:
        assert "eval_loss" in result["returned"]["evaluate"] or "eval_far_loss" in result["returned"]["evaluate"]
        if not case.get("prediction_loss_only"):
            assert [o[0].shape for o in result["returned"]["predict"]] == [(13, LABELS), (9, LABELS)]


def test_stopped_early_and_the_best_are_what_they_say(tmp_path):
    stopped = both(tmp_path / "a", **EVALUATION["stopped early"])
    assert stopped["output"][0] == 12  # the second evaluation is no better
    best = both(tmp_path / "b", **EVALUATION["best model"])
    values = [entry["eval_accuracy"] for entry in best["history"] if "eval_accuracy" in entry]
    state = max(
        (c for n, c in best["files"].items() if n.endswith("trainer_state.json")), key=lambda c: c["global_step"]
    )
    assert state["best_metric"] == max(values)


def test_more_outputs(tmp_path):
    """Hidden states are predictions too, unless they are ignored."""

    def predict(trainer):
        trainer.model.config.output_hidden_states = True
        whole = trainer.predict(rows(10))
        part = trainer.predict(rows(10), ignore_keys=["hidden_states"])
        return [whole.predictions, part.predictions]

    whole, part = both(tmp_path, then=predict, trained=False)["returned"]
    assert len(whole[1]) == 4
    assert part.shape == (10, LABELS)


def test_metrics_and_state_are_saved(tmp_path):
    def save(trainer):
        trainer.save_metrics("eval", {"eval_loss": 0.5, "eval_runtime": 1.0})
        trainer.log_metrics("eval", {"eval_loss": 0.5})
        trainer.save_state()
        trainer.save_model()

    files = both(tmp_path, then=save)["files"]
    assert {"all_results.json", "eval_results.json", "trainer_state.json", "model.safetensors"} <= set(files)


def test_callbacks_are_added_found_and_removed(tmp_path):
    def change(trainer):
        extra = Flags()
        trainer.add_callback(extra)
        before = [type(c).__name__ for c in trainer.callback_handler.callbacks]
        popped = trainer.pop_callback(Flags) is extra
        trainer.remove_callback(Recorder)
        return [before, popped, [type(c).__name__ for c in trainer.callback_handler.callbacks]]

    before, popped, after = both(tmp_path, then=change, trained=False)["returned"]
    assert popped
    assert before == [*after[: before.index("Recorder")], "Recorder", *after[before.index("Recorder") :], "Flags"]


# --- What a user's own subclass and data may do ---


class Own(Trainer):
    """Overrides what people override."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 2.0, 3.0]))
        return (loss, outputs) if return_outputs else loss

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, 5, collate_fn=self.data_collator)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        return loss, None if logits is None else logits * 2, labels

    def create_optimizer(self, model=None):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return self.optimizer

    def log(self, logs, *args, **kwargs):
        super().log({**logs, "own": 1}, *args, **kwargs)


class OwnStrategic(StrategyTrainerMixin, Own):
    """The same with the mixin before it."""


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_subclass(tmp_path, accumulation):
    """A loss of the user's own is a mean over micro-batches of one size, which both scale alike."""
    settings = {"eval_strategy": "epoch", "train_dataset": rows(20), "num_train_epochs": 2}
    model = {} if accumulation == 1 else {"model": averaging}
    result = both(
        tmp_path,
        trainers=(Own, OwnStrategic),
        gradient_accumulation_steps=accumulation,
        then=lambda trainer: trainer.predict(rows(6)).predictions,
        **settings,
        **model,
    )
    assert all(entry["own"] == 1 for entry in result["history"])
    assert {len(ids) for ids in result["order"]} == {5, 8, 2, 6}


def test_data_that_is_made_when_it_is_read(tmp_path):
    """A transform sees the rows of the batches alone: it may draw random numbers, and names other columns."""

    def encode(batch):
        ids = torch.tensor(batch["ids"])
        noise = torch.randint(5, VOCAB, ids.shape)
        return {"input_ids": list(torch.where(torch.rand(ids.shape) < 0.1, noise, ids)), "labels": batch["label"]}

    columns = {"ids": [row["input_ids"].tolist() for row in rows(22)], "label": [row["labels"] for row in rows(22)]}
    made = Dataset.from_dict(columns).with_transform(encode)
    result = both(tmp_path, train_dataset=made, remove_unused_columns=False)
    assert len(losses(result)) == 6


# --- The one exception ---


def test_under_accumulation_the_loss_is_that_of_the_whole_batch(tmp_path):
    """Steps, data, callbacks and files are Trainer's; the loss is that which Trainer has without accumulation."""
    settings = {"model": lambda: tiny_bert(dropout=0.0), "train_dataset": rows(24), "save_strategy": "epoch"}
    settings |= {"num_train_epochs": 2, "optim": "sgd"}
    stock, ours = (
        run(trainer, tmp_path / trainer.__name__, **settings, gradient_accumulation_steps=2)
        for trainer in (Trainer, StrategyTrainer)
    )
    for part in ("events", "order"):
        assert difference(stock[part], ours[part]) is None
    assert list(stock["files"]) == list(ours["files"])
    assert [list(entry) for entry in stock["history"]] == [list(entry) for entry in ours["history"]]
    whole = run(Trainer, tmp_path / "whole", **settings, per_device_train_batch_size=8)
    assert losses(ours) == pytest.approx(losses(whole), rel=1e-4)
    for name, weight in whole["weights"].items():
        assert torch.allclose(weight, ours["weights"][name], atol=1e-6)
