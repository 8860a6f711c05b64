"""Cases run by two trainers and compared: everything that can be seen of a run, and small models and data for it."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import peft
import torch
from datasets import Dataset
from torch import nn
from transformers import (
    DataCollatorWithPadding,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hf_ftstrategies import StrategyTrainer, StrategyTrainerMixin, StrategyTrainingArguments
from tests.data.tiny import bert
from tests.tiny import LABELS, VOCAB, StopAt, arguments, rows, snapshot, tiny_bert

FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}
TIMES = ("_runtime", "_per_second", "_mem_", "_preparation_time")  # measured, so never the same twice


# --- Running a case and comparing ---


class Recorder(TrainerCallback):
    """Writes down every event with its step and what it was given."""

    def __init__(self):
        self.events = []


def _record(event):
    def record(self, args, state, control, **kwargs):
        self.events.append((event, state.global_step, state.epoch, sorted(kwargs)))

    return record


for name in [name for name in dir(TrainerCallback) if name.startswith("on_")]:
    setattr(Recorder, name, _record(name))


def collate(examples):
    return {key: torch.stack([torch.as_tensor(e[key]) for e in examples]) for key in examples[0]}


def run(trainer, folder, *, resume=None, cut=None, then=None, trained=True, **case):
    """Run one case with one trainer class, and return everything that can be seen of it."""
    if cut is not None:  # as after a kill, with the same settings
        own = case.get("callbacks", list)
        run(trainer, folder, **{**case, "callbacks": lambda: [*own(), StopAt(cut)]})
    stock = trainer is Trainer or not issubclass(trainer, StrategyTrainerMixin)
    settings = {name: case.pop(name) for name in list(case) if name in FIELDS}
    args = arguments(folder, cls=TrainingArguments if stock else StrategyTrainingArguments, **settings)
    fresh = {name: value() for name, value in case.items() if name in ("model", "callbacks", "optimizers")}
    recorder, order, gather = Recorder(), [], case.pop("data_collator", collate)

    def noting(examples):
        batch = gather(examples)
        order.append(batch["input_ids"].clone())
        return batch

    model = {} if "model_init" in case else {"model": tiny_bert()}
    given = {"train_dataset": rows(22), "eval_dataset": rows(10, seed=1), **model, **case, **fresh}
    given |= {"callbacks": [*given.get("callbacks", ()), recorder], "data_collator": noting}
    made = trainer(args=args, **given)
    if trained:
        output = made.train(resume_from_checkpoint=resume)
    returned = None if then is None else then(made)
    return {
        "output": (output.global_step, output.training_loss, without_times(output.metrics)) if trained else None,
        "returned": returned,
        "weights": snapshot(made.model),
        "optimizer": made.optimizer.state_dict() if made.optimizer is not None else None,
        "history": [without_times(entry) for entry in made.state.log_history],
        "events": recorder.events,
        "order": order,
        "files": {str(p.relative_to(folder)): _content(p, folder) for p in Path(folder).rglob("*") if p.is_file()},
    }


def without_times(entry):
    if isinstance(entry, dict):
        return {k: None if any(t in k for t in TIMES) else without_times(v) for k, v in entry.items()}
    return [without_times(e) for e in entry] if isinstance(entry, list) else entry


def _content(path, folder):
    if path.suffix == ".json":
        return without_times(json.loads(path.read_text().replace(str(folder), "")))
    return None if path.name == "training_args.bin" else path.read_bytes()


def difference(a, b, where=""):
    """The first place in which two results differ, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b) and where != ".files":
            return f"{where}: keys {list(a)} and {list(b)}"
        if set(a) != set(b):
            return f"{where}: {sorted(set(a) ^ set(b))} only in one"
        return next(filter(None, (difference(a[key], b[key], f"{where}.{key}") for key in a)), None)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)} entries"
        return next(filter(None, (difference(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))), None)
    if isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and torch.equal(a.nan_to_num(1e9), b.nan_to_num(1e9))
    elif isinstance(a, np.ndarray):
        same = a.shape == b.shape and np.array_equal(a, b)
    else:
        same = type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))
    return None if same else f"{where}: {str(a)[:80]} and {str(b)[:80]}"


def both(tmp_path, trainers=(Trainer, StrategyTrainer), **case):
    """The result of a case, after both trainers were found to agree on all of it."""
    results = [run(trainer, tmp_path / str(i), **case) for i, trainer in enumerate(trainers)]
    assert difference(*results) is None, difference(*results)
    return results[0]


def losses(result):
    return [entry["loss"] for entry in result["history"] if "loss" in entry]


def accuracy(prediction):
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((logits.argmax(-1) == prediction.label_ids).mean())}


# --- Data, models and losses of the cases ---


def texts(count=22, seed=0):
    """Rows of different lengths, as a `Dataset`, with a column that no model takes."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    ids = [torch.randint(5, VOCAB, (n,), generator=generator).tolist() for n in lengths]
    columns = {"input_ids": ids, "labels": [i[0] % LABELS for i in ids], "length": lengths, "text": ["w"] * count}
    return Dataset.from_dict(columns)


def padded():
    return {"data_collator": DataCollatorWithPadding(bert()), "eval_dataset": texts(10, seed=1)}


class Stream(torch.utils.data.IterableDataset):
    """Data without a length."""

    def __iter__(self):
        return iter(rows(22))


class Items(torch.utils.data.Dataset):
    """A map-style data set that is no list."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        return rows(22)[index]


class Averaging(type(tiny_bert())):
    """A BERT that says that its loss is a mean over the batch, so that `Trainer` scales it right."""

    accepts_loss_kwargs = False


def averaging():
    made = Averaging(tiny_bert().config)
    made.load_state_dict(tiny_bert().state_dict())
    return made


class Bag(nn.Module):
    """A model that is no `PreTrainedModel`."""

    def __init__(self, as_tuple=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head, self.as_tuple = nn.Embedding(VOCAB, 8), nn.Linear(8, LABELS), as_tuple

    def forward(self, input_ids, labels=None):
        logits = self.head(self.embedding(input_ids).mean(1))
        loss = nn.functional.cross_entropy(logits, labels)
        return (loss, logits) if self.as_tuple else {"loss": loss, "logits": logits}


def frozen_bert():
    model = tiny_bert()
    model.bert.requires_grad_(False)
    return model


def gpt2():
    torch.manual_seed(0)
    size = {"vocab_size": VOCAB, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))


def llama():
    torch.manual_seed(0)
    size = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**size, num_attention_heads=2))


def language(count=22, seed=0):
    return [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows(count, seed=seed)]


def regression(count, seed=0):
    return [{**row, "labels": float(row["labels"])} for row in rows(count, seed=seed)]


def summed_loss(outputs, labels, num_items_in_batch=None):
    total = nn.functional.cross_entropy(outputs.logits, labels, reduction="sum")
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def lora():
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=True)
    torch.manual_seed(1)
    return peft.get_peft_model(tiny_bert(), config)


class Flags(TrainerCallback):
    """Logs, evaluates and saves when it wants to."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log = state.global_step == 2
        control.should_evaluate = state.global_step == 3
        control.should_save = state.global_step == 4
        control.should_epoch_stop = state.global_step == 5
        return control


def sgd():
    return (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), None)


# --- Settings that several cases share ---

EVALUATED = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 4}
BEST = {**EVALUATED, "load_best_model_at_end": True, "save_total_limit": 1}
LENGTHS = {"train_dataset": texts(), "train_sampling_strategy": "group_by_length", **padded()}
