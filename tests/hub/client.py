"""What tests do in the client's process; nothing here is imported before its environment is set."""

import dataclasses
import json
import os
import time

WAITS = []


def start():
    """Wait for nothing from now on, and draw the report of the same facts only once."""
    from hf_ftstrategies.hub import public_files

    time.sleep = WAITS.append
    drawn, write_report = {}, public_files.write_report

    def write_once(path, *facts):
        key = json.dumps(facts)
        if key not in drawn:
            drawn[key] = write_report(path, *facts).read_bytes()
        path.write_bytes(drawn[key])

    public_files.write_report = write_once


def waits():
    """The waits since the last call, in seconds."""
    found = WAITS.copy()
    WAITS.clear()
    return found


def call(name, *args, **kwargs):
    """A method of `HfApi`."""
    from huggingface_hub import HfApi

    return getattr(HfApi(), name)(*args, **kwargs)


def download(repo, path, revision=None):
    """The bytes of a file of a repository, which are not taken from the cache."""
    from huggingface_hub import hf_hub_download

    with open(hf_hub_download(repo, path, revision=revision, force_download=True), "rb") as file:
        return file.read()


def push_impatiently(*args, **kwargs):
    """`push_folder` that waits 0.3 s for an answer."""
    from unittest.mock import patch

    from hf_ftstrategies.hub import attempts, push

    with patch.object(attempts, "TIMEOUT", 0.3), patch.object(push, "TIMEOUT", 0.3):
        return push.push_folder(*args, **kwargs)


def push_offline(*args, **kwargs):
    """`push_folder` as with HF_HUB_OFFLINE=1."""
    from unittest.mock import patch

    from hf_ftstrategies.hub.push import push_folder

    with patch("huggingface_hub.constants.HF_HUB_OFFLINE", True):
        return push_folder(*args, **kwargs)


def command(*words):
    """`hf-ftstrategies WORDS`: its exit status and what it printed."""
    from typer.testing import CliRunner

    from hf_ftstrategies.cli import app

    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


def tiny_recipe(folder, *options):
    """Run a tiny recipe: its exit status, and what it printed.

    Its model, data and output lie in `folder`; options go over its presets, and may name what else lies there:
    other.csv, a second data set, and awd_lstm, a language model.
    """
    import io
    from contextlib import redirect_stderr, redirect_stdout

    from hf_ftstrategies import AwdLstmForCausalLM
    from hf_ftstrategies.pipeline.recipe import main
    from tests.data.tiny import bert
    from tests.modeling.awd_lstm import tiny
    from tests.pipeline.tiny_run import csv_file, recipe

    made = recipe(folder, max_steps=4, evaluations=1, unfreezing="none")
    csv_file(folder / "other.csv", rows=60, seed=5)
    tokenizer = bert()
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    for part in (tiny(AwdLstmForCausalLM, **sizes).float(), tokenizer):
        part.save_pretrained(folder / "awd_lstm")
    printed, status = io.StringIO(), 0
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            main(made, [str(option) for option in options])
        except SystemExit as ended:
            status = ended.code
    return status, " ".join(printed.getvalue().split())


def environment():
    """That of this process, for processes that a test starts."""
    return dict(os.environ)


def load_with_the_package(name):
    """The module of a pushed model's class and its weights, without `trust_remote_code`."""
    from transformers import AutoModelForSequenceClassification

    import hf_ftstrategies  # noqa: F401

    model = AutoModelForSequenceClassification.from_pretrained(name)
    weights = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    return {"class": type(model).__module__, "weights": weights}


def train_further(name, folder):
    """The losses of a training that starts from a pushed model."""
    from transformers import AutoModelForSequenceClassification

    from hf_ftstrategies import StrategyTrainer
    from tests.tiny import arguments, rows

    model = AutoModelForSequenceClassification.from_pretrained(name)
    args = arguments(folder, num_train_epochs=8, layer_decay=0.9)
    trainer = StrategyTrainer(model, args, train_dataset=rows())
    trainer.train()
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


def train_and_push(folder, stop=None):
    """A StrategyTrainer with the Trainer's own pushes during training; `stop` ends it after that step."""
    from hf_ftstrategies import StrategyTrainer
    from tests.tiny import StopAt, arguments, rows, tiny_bert

    settings = {"layer_decay": 0.9, "unfreezing": "gradual", "unfreeze_every": "2", "num_train_epochs": 2}
    settings |= {"save_strategy": "steps", "save_steps": 3}
    if stop is not None:
        settings |= {"push_to_hub": True, "hub_model_id": "user/run", "hub_strategy": "checkpoint"}
    args = arguments(folder, hub_always_push=True, **settings)
    callbacks = [] if stop is None else [StopAt(stop)]
    trainer = StrategyTrainer(tiny_bert(), args, train_dataset=rows(), callbacks=callbacks)
    trainer.train()
    return trainer


def losses_and_weights(trainer):
    losses = [(log["step"], log["loss"]) for log in trainer.state.log_history if "loss" in log]
    return losses, {key: tensor.numpy() for key, tensor in trainer.model.state_dict().items()}


def train_straight(folder):
    return losses_and_weights(train_and_push(folder))


def train_in_two_places(folder, stop):
    """The same, stopped, its last checkpoint fetched from the Hub, and finished from that."""
    from huggingface_hub import snapshot_download

    from hf_ftstrategies import StrategyTrainer
    from tests.tiny import rows, tiny_bert

    first = train_and_push(folder / "first", stop)
    args = dataclasses.replace(first.args, output_dir=str(folder / "second"), push_to_hub=False)
    checkpoint = snapshot_download("user/run", allow_patterns="last-checkpoint/*") + "/last-checkpoint"
    second = StrategyTrainer(tiny_bert(seed=1), args, train_dataset=rows())
    second.train(resume_from_checkpoint=checkpoint)
    return losses_and_weights(second)


def train_and_survive(folder):
    """The steps of a training that pushes."""
    return train_and_push(folder, stop=99).state.global_step


def train_and_push_adapter(folder):
    """Logits of a LoRA that a StrategyTrainer trained and pushed: its own, and after loading it from the Hub."""
    import peft
    import torch
    from transformers import AutoModelForSequenceClassification

    from hf_ftstrategies import StrategyTrainer
    from tests.tiny import LABELS, arguments, rows, tiny_bert

    tiny_bert().push_to_hub("user/base")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    model = peft.get_peft_model(
        AutoModelForSequenceClassification.from_pretrained("user/base", num_labels=LABELS), config
    )
    args = arguments(folder / "out", push_to_hub=True, hub_model_id="user/adapter", layer_decay=0.9)
    trainer = StrategyTrainer(model, args, train_dataset=rows())
    trainer.train()
    trainer.push_to_hub()
    ids = torch.stack([row["input_ids"] for row in rows(4, seed=1)])
    loaded = peft.AutoPeftModelForSequenceClassification.from_pretrained("user/adapter", num_labels=LABELS)
    with torch.no_grad():
        return [each.eval()(input_ids=ids).logits.tolist() for each in (trainer.model, loaded)]


def load_dataset(name, **options):
    """Rows and facts of a data set, through the real loading code."""
    from hf_ftstrategies.data.sources import load_dataset_splits

    splits, info = load_dataset_splits(name, **options)
    return {split: rows.to_list() for split, rows in splits.items()}, list(info.label_names), info.hub_id
