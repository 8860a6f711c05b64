"""Damaged state in a checkpoint or an output folder: one `ValueError`, or a resumed run; nothing in it is executed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ftstrategies import EarlyStopping, GradualUnfreezing, StrategyTrainer
from hf_ftstrategies.pipeline.output import OutputFolder, newest_complete_checkpoint
from hf_ftstrategies.strategies.state_files import JSON_NAME, TENSORS_NAME, load_states, read_json, save_states
from tests.fuzz.attempt import attempt
from tests.fuzz.damage import altered, damaged
from tests.tiny import StopAt, arguments, rows, tiny_bert

SCHEDULE = "phases:\n- {train: head, until: {early_stop: {metric: loss, patience: 9}, epoch: 1}}\n- {train: all}\n"


def strategies():
    made = [GradualUnfreezing("gradual"), EarlyStopping(2)]
    made[0]._best_weights = {"classifier.bias": torch.arange(3.0)}
    return made


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with our two state files."""
    folder = tmp_path_factory.mktemp("state")
    save_states(folder, strategies(), {"total_steps": 3, "groups": [{"name": "head"}]})
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A real checkpoint in the midst of an early-stopped phase, and the trainer that resumes from it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "schedule.yaml").write_text(SCHEDULE)

    def trainer(stop):
        settings = {"unfreezing": str(folder / "schedule.yaml"), "early_stopping_patience": 3, "num_train_epochs": 2}
        settings |= {
            "eval_strategy": "steps",
            "eval_steps": 1,
            "metric_for_best_model": "loss",
            "save_strategy": "steps",
        }
        args = arguments(folder, save_steps=3, greater_is_better=False, **settings)
        data = {"train_dataset": rows(), "eval_dataset": rows(4)}
        return StrategyTrainer(tiny_bert(), args, callbacks=[StopAt(stop)], **data)

    trainer(stop=3).train()
    return folder / "checkpoint-3", trainer(stop=4)


def load(folder):
    made = strategies()
    load_states(folder, made)
    return [strategy.state_dict() for strategy in made]


@settings(max_examples=400)
@given(data=st.data(), name=st.sampled_from([JSON_NAME, TENSORS_NAME]))
def test_damaged_bytes(saved, tmp_path_factory, data, name):
    folder = shutil.copytree(saved, tmp_path_factory.mktemp("copies") / "copy")
    (folder / name).write_bytes(data.draw(damaged((saved / name).read_bytes())))
    states, message = attempt(lambda: load(folder))
    assert message is None or str(folder) in message
    assert states is None or [set(s) for s in states] == [set(s) for s in load(saved)]
    shutil.rmtree(folder)


@settings(max_examples=400)
@given(data=st.data())
def test_other_values(saved, tmp_path_factory, data):
    folder = shutil.copytree(saved, tmp_path_factory.mktemp("copies") / "copy")
    content = data.draw(altered(json.loads((saved / JSON_NAME).read_text())))
    (folder / JSON_NAME).write_text(json.dumps(content))
    states, message = attempt(lambda: load(folder))
    assert message is None or str(folder) in message
    if states is not None:
        assert all(isinstance(states[0][name], int) for name in ("phase", "waited"))
        assert isinstance(read_json(folder)["fingerprint"], dict)
    shutil.rmtree(folder)


@settings(max_examples=60)
@given(data=st.data())
def test_resumed_or_refused(checkpoint, data):
    folder, trainer = checkpoint
    whole = (folder / JSON_NAME).read_bytes()
    content = json.loads(whole)
    content["states"] = data.draw(altered(content["states"]))
    (folder / JSON_NAME).write_text(json.dumps(content))
    try:
        output, message = attempt(lambda: trainer.train(resume_from_checkpoint=str(folder)))
    finally:
        (folder / JSON_NAME).write_bytes(whole)
    assert message is not None or output.global_step == 4
    assert all(p.requires_grad for p in trainer.model.parameters())


SETTINGS = {"layer_decay": 0.9, "rows": [1, 2], "model": "minilm"}


def manifest():
    return {"format": 1, "status": "running", "settings": SETTINGS}


@settings(max_examples=300)
@given(
    content=st.one_of(
        damaged(json.dumps(manifest(), indent=2).encode()), altered(manifest()).map(json.dumps).map(str.encode)
    )
)
def test_manifests(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("out")
    Path(folder, "manifest.json").write_bytes(content)
    (folder / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    looked = OutputFolder(folder, SETTINGS, owner=False)  # of another process: the owner reports
    claimed, message = attempt(lambda: OutputFolder(folder, SETTINGS))
    assert message is None or str(folder) in message
    if claimed is not None:
        assert claimed.is_finished == looked.is_finished
        assert json.loads((folder / "manifest.json").read_text())["settings"] == SETTINGS
    shutil.rmtree(folder)


@given(content=st.one_of(st.none(), damaged(b'{"global_step": 1, "log_history": []}')))
def test_trainer_states(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("checkpoints")
    for step, state in ((1, b"{}"), (2, content)):
        (folder / f"checkpoint-{step}").mkdir()
        if state is not None:
            (folder / f"checkpoint-{step}" / "trainer_state.json").write_bytes(state)
    found = newest_complete_checkpoint(folder)
    assert found in (str(folder / "checkpoint-1"), str(folder / "checkpoint-2"))
    assert content is not None or found.endswith("1")
    shutil.rmtree(folder)
