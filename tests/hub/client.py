"""What tests do in the client's process; nothing here is imported before its environment is set."""

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

    Its model, data and output lie in `folder`; options go over its presets.
    """
    import io
    from contextlib import redirect_stderr, redirect_stdout

    from hf_ftstrategies.pipeline.recipe import main
    from tests.pipeline.tiny_run import recipe

    printed, status = io.StringIO(), 0
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            main(recipe(folder, max_steps=4, evaluations=1, unfreezing="none"), [str(option) for option in options])
        except SystemExit as ended:
            status = ended.code
    return status, " ".join(printed.getvalue().split())


def environment():
    """That of this process, for processes that a test starts."""
    return dict(os.environ)


def load_with_the_package(name):
    """The module of a pushed model's class and its weights, without `trust_remote_code`."""
    from transformers import AutoModelForSequenceClassification

    import hf_ftstrategies.modeling.classifier  # noqa: F401

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
