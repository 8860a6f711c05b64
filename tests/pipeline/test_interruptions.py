"""What ends a run before its time: one line that says what to do, and the same command goes on to equal bits."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback

from hf_ftstrategies.pipeline import further_pretraining, interruptions
from hf_ftstrategies.pipeline.interruptions import SaveOnSignal
from hf_ftstrategies.pipeline.recipe import main, run_recipe
from tests.pipeline import tiny_pretraining
from tests.pipeline.tiny_run import recipe
from tests.tiny import equal, snapshot


def model_of(folder):
    return snapshot(AutoModelForSequenceClassification.from_pretrained(folder))


class At(TrainerCallback):
    """Do something within a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step + 1 == self.step:
            self.action(model)


@pytest.fixture
def during(monkeypatch):
    """`during(step, action)`: every fine-tuning from now on does it in that step."""
    train = interruptions.GuardedTrainer.train

    def install(step, action):
        def with_callback(self, *args, **kwargs):
            self.add_callback(At(step, action))
            return train(self, *args, **kwargs)

        monkeypatch.setattr(interruptions.GuardedTrainer, "train", with_callback)

    return install


def stopped(capsys, recipe, status):
    """The line that the run ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(recipe, [])
    assert ended.value.code == status
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("error:")]
    return line


def check_goes_on(tmp_path, killed, monkeypatch):
    monkeypatch.undo()
    resumed = run_recipe(killed, [])
    straight = run_recipe(recipe(tmp_path, output_dir=str(tmp_path / "straight")), [])
    assert resumed["metrics"] == straight["metrics"]
    assert equal(model_of(tmp_path / "straight"), model_of(tmp_path / "out"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("step", [3, 16])  # before the first evaluation, and where one is saved anyway
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch, during, number, status, step):
    killed, before = recipe(tmp_path), signal.getsignal(number)
    during(step, lambda model: os.kill(os.getpid(), number))
    line = stopped(capsys, killed, status)
    assert f"Stopped by {number.name}. The same command goes on from" in line
    assert line.endswith(f"checkpoint-{step}.")
    assert signal.getsignal(number) is before
    check_goes_on(tmp_path, killed, monkeypatch)


def test_a_signal_after_the_last_step_is_obeyed(tmp_path, capsys, monkeypatch):
    """While the last checkpoint is written, after the processes have asked each other."""
    killed, save = recipe(tmp_path), Trainer._save_optimizer_and_scheduler

    def with_signal(self, folder):
        if str(folder).endswith("checkpoint-32"):
            os.kill(os.getpid(), signal.SIGTERM)
        save(self, folder)

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", with_signal)
    assert stopped(capsys, killed, 143).endswith("checkpoint-32.")
    assert not (tmp_path / "out" / "results.json").exists()
    check_goes_on(tmp_path, killed, monkeypatch)


def test_a_second_signal_is_not_caught():
    before, callback = signal.getsignal(signal.SIGTERM), SaveOnSignal()
    callback.listen()
    assert signal.getsignal(signal.SIGTERM) != before
    callback._receive(signal.SIGINT, None)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_in_the_first_stage(tmp_path, capsys, monkeypatch):
    folder = tiny_pretraining.prepare(tmp_path)
    killed = tiny_pretraining.recipe(folder, pretraining_steps=6, pretraining_save_steps=2)
    prepare = further_pretraining.prepare_further_pretraining

    def with_signal(*args):
        stage = prepare(*args)
        stage.trainer.add_callback(At(3, lambda model: os.kill(os.getpid(), signal.SIGTERM)))
        return stage

    monkeypatch.setattr(further_pretraining, "prepare_further_pretraining", with_signal)
    assert os.path.join("pretraining", "checkpoints", "checkpoint-3.") in stopped(capsys, killed, 143)
    monkeypatch.undo()
    resumed = run_recipe(killed, [])
    straight = run_recipe(killed, ["--output_dir", str(tmp_path / "straight")])
    assert resumed["metrics"] == straight["metrics"]


def test_interrupted_where_nothing_is_saved_yet(tmp_path, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", interrupt)
    assert "No checkpoint was saved yet: the same command begins anew." in stopped(capsys, recipe(tmp_path), 130)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number(tmp_path, capsys, during, value):
    @torch.no_grad()
    def spoil(model):
        model.classifier.bias.fill_(value)

    during(5, spoil)
    line = stopped(capsys, recipe(tmp_path), 1)
    assert "The loss of step 6 is nan, at the learning rate " in line
    file = tmp_path / "out" / "checkpoints" / "bad_batch-0.safetensors"
    assert str(file) in line
    with safe_open(file, "pt") as batch:
        assert batch.get_tensor("input_ids").shape == (8, 12)
        assert set(batch.keys()) >= {"attention_mask", "labels"}
        assert json.loads(batch.metadata()["facts"])["step"] == 6


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:128] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["cuda", "cpu", "python"])
def test_out_of_memory(tmp_path, capsys, monkeypatch, during, error):
    def fail(model):
        raise error

    killed = recipe(tmp_path)
    during(20, fail)
    line = stopped(capsys, killed, 1)
    assert "Lower --per_device_train_batch_size (now 8; with --global_batch_size the result stays" in line
    assert "The same command goes on from" in line
    check_goes_on(tmp_path, killed, monkeypatch)


# What a full disk looks like to Python, safetensors and torch.save.
DISK_FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
]


@pytest.mark.parametrize("error", DISK_FULL, ids=["python", "safetensors", "torch"])
def test_a_full_disk(tmp_path, capsys, monkeypatch, error):
    """While the second checkpoint is written."""
    save = Trainer._save_optimizer_and_scheduler

    def fail(self, folder):
        if str(folder).endswith("checkpoint-16"):
            raise error
        save(self, folder)

    killed = recipe(tmp_path)
    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", fail)
    line = stopped(capsys, killed, 1)
    assert "is full: " in line
    assert "lower --save_total_limit (it is None). The same command goes on from" in line
    assert line.endswith("checkpoint-8.")
    check_goes_on(tmp_path, killed, monkeypatch)


def test_a_disk_that_is_really_full(tmp_path, capsys):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system takes root")
    try:
        line = stopped(capsys, recipe(tmp_path, output_dir=str(small / "out")), 1)
        assert f"The disk of '{small}/out' is full" in line
        assert "The same command goes on from" in line
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_anything_else_is_a_bug_and_keeps_its_traceback(tmp_path, during):
    def fail(model):
        raise ZeroDivisionError

    during(2, fail)
    with pytest.raises(ZeroDivisionError):
        main(recipe(tmp_path), [])


# --- Several processes ---

SCRIPT = """
import os, signal, sys, time
from transformers import TrainerCallback
from hf_ftstrategies.pipeline import interruptions
from hf_ftstrategies.pipeline.recipe import Recipe, main

class Act(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step == 2 and args.process_index == 1:
            {action}

train = interruptions.GuardedTrainer.train
def with_callback(self, *args, **kwargs):
    self.add_callback(Act())
    return train(self, *args, **kwargs)
interruptions.GuardedTrainer.train = with_callback
main(Recipe("tiny", "Tiny", {presets!r}))
"""


def two_processes(tmp_path, action):
    presets = {**recipe(tmp_path).presets, "max_steps": 8, "evaluations": 1, "unfreezing": "none"}
    script = tmp_path / "tiny.py"
    script.write_text(SCRIPT.format(action=action, presets=presets))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_signal_to_one_process_stops_all_after_the_same_step(tmp_path):
    done = two_processes(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)")
    assert done.returncode != 0
    assert "error: Stopped by SIGTERM. The same command goes on from" in done.stderr
    checkpoint = tmp_path / "out" / "checkpoints" / "checkpoint-3"
    assert {path.name for path in checkpoint.iterdir()} >= {"rng_state_0.pth", "rng_state_1.pth", "trainer_state.json"}


def test_a_process_that_dies_brings_the_others_down_and_says_why(tmp_path):
    done = two_processes(tmp_path, "raise ZeroDivisionError('rank 1 is lost')")
    assert done.returncode != 0
    assert "ZeroDivisionError: rank 1 is lost" in done.stderr
    assert not (tmp_path / "out" / "results.json").exists()
