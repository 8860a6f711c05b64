"""Tiny models, rows and arguments that the tests share."""

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainerCallback

from hf_ftstrategies import StrategyTrainingArguments

VOCAB, LABELS = 50, 3


def tiny_bert(seed: int = 0, layers: int = 3, dropout: float = 0.1, **config) -> BertForSequenceClassification:
    """A BERT classifier of a few thousand parameters, the same for the same seed."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 20,
        "max_position_embeddings": 32,
        "num_labels": LABELS,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    return BertForSequenceClassification(BertConfig(**{**settings, **config}))


def loaded_bert(tmp_path, **kwargs) -> BertForSequenceClassification:
    """The same after save_pretrained and from_pretrained, with the marks that v5 puts on loaded weights."""
    tiny_bert(**kwargs).save_pretrained(tmp_path / "pretrained")
    return BertForSequenceClassification.from_pretrained(tmp_path / "pretrained")


def rows(count: int = 24, length: int = 8, seed: int = 0) -> list[dict]:
    """Rows of token ids whose label can be learned: it is the first token modulo the number of labels."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB, (count, length), generator=generator)
    return [{"input_ids": row, "labels": int(row[0]) % LABELS} for row in ids]


def arguments(folder, cls=StrategyTrainingArguments, **kwargs):
    """Arguments for a short quiet run on the CPU."""
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 8,
        "num_train_epochs": 1,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
    }
    return cls(**{**defaults, **kwargs})


def snapshot(model) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal to the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class StopAt(TrainerCallback):
    """End the training after a step, as a kill would, without changing its schedule."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_training_stop = True


class Killed(Exception):
    """What `KillAt` raises."""


class KillAt(TrainerCallback):
    """End the process after a step, as far as a test can."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise Killed


class Script(TrainerCallback):
    """Adds a metric `score` with given values to the evaluations."""

    def __init__(self, values):
        self.values = list(values)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        metrics["eval_score"] = self.values.pop(0)
