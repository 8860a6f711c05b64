"""Two gloo processes train as one process does with the same global batch of 8, and freeze as it does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import load_file

from tests.distributed import worker
from tests.tiny import equal

ROOT = Path(__file__).parents[2]
STEPS = 10
COMPOSED = {
    "layer_decay": 0.9,
    "lr_schedule": "slanted_triangular",
    "reinit_layers": 1,
    "unfreezing": "gradual",
    "unfreeze_every": "2",
    "weight_decay": 0.1,
}
# Trainer seeds both processes alike, so they draw the same masks.
HELD = {**COMPOSED, "mixout": 0.5, "pretrained_weight_decay": 10.0, "log_layer_distance": True}
AVERAGED = {
    **COMPOSED,
    "gradient_accumulation_steps": 2,
    "self_distillation": "sda",
    "teacher_size": 3,
    "distillation_weight": 50.0,
    "self_ensemble": "last_k",
    "ensemble_size": 11,
    "evaluations": 2,
    "save_strategy": "steps",
    "load_best_model_at_end": True,
    "metric_for_best_model": "ensemble_loss",
}
BERT_ADAM = {"bias_correction": False, "lr_schedule": "bert_linear", "warmup_steps": 2, "learning_rate": 1e-3}
# By Adam's own epsilon a gradient that is 0 but for rounding becomes a whole step.
ROUNDED = {"weight_decay": 0.1, "adam_epsilon": 1e-6}
EVALUATED = {"evaluations": 2, "save_strategy": "steps", "load_best_model_at_end": True}
SAVED = {"save_strategy": "steps", "save_steps": 3}

RUNS = {
    "plain": {"settings": {}},
    "accumulated": {"settings": {"gradient_accumulation_steps": 2}},
    "composed": {"settings": COMPOSED},
    "composed_accumulated": {"settings": {**COMPOSED, "gradient_accumulation_steps": 2}},
    "averaged": {"settings": AVERAGED},
    "sdv": {"settings": {"self_distillation": "sdv", "teacher_size": 2, "self_ensemble": "ema"}},
    "ema_se": {"settings": {"self_distillation": "ema", "self_ensemble": "se", "gradient_accumulation_steps": 2}},
    "best": {"settings": {"self_ensemble": "best_k", "ensemble_size": 2, "evaluations": 3}},
    "thawed": {
        "settings": {"unfreezing": "chain_thaw", "unfreeze_every": "1", "early_stopping_patience": 9} | EVALUATED
    },
    # the last step has 5 rows; by default accelerate would fill it up with the first rows, over two processes only
    "uneven": {"settings": {**COMPOSED, "accelerator_config": {"even_batches": False}}, "count": 37},
    "bert_adam": {"settings": BERT_ADAM},
    "held": {"settings": HELD},
    "multitask": {"settings": COMPOSED, "multitask": True},
    "multitask_accumulated": {"settings": ROUNDED | {"gradient_accumulation_steps": 2}, "multitask": True},
    "stock": {"trainer": "Trainer", "settings": {}},
}
# Only with two processes: cut within a phase, then resumed in the folder of the cut run. Transformers 5.17 loads
# the optimizer to the device "cpu:0" there, which torch refuses.
CAN_RESUME = Version(transformers.__version__) >= Version("5.18")
CUT = {"settings": HELD | SAVED, "stop": 3, "folder": "resumed"}
RESUMED = {"settings": HELD | SAVED, "resume": True, "folder": "resumed"}


def of_processes(name: str, run: dict, processes: int) -> dict:
    """The run with 8 rows in each step, whatever the number of processes and micro-batches."""
    micro_batches = processes * run["settings"].get("gradient_accumulation_steps", 1)
    size = {"per_device_train_batch_size": 8 // micro_batches, "num_train_epochs": 2}
    return {"name": name, **run, "settings": {**run["settings"], **size}}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Results of all runs: of one process in `one`, of two in `two`."""
    folder = tmp_path_factory.mktemp("processes")
    for name, run in RUNS.items():
        (folder / "one").mkdir(exist_ok=True)
        worker.train(folder / "one", **of_processes(name, run, 1))
    with_two = RUNS | ({"cut": CUT, "resumed": RESUMED} if CAN_RESUME else {})
    runs = [of_processes(name, run, 2) for name, run in with_two.items()]
    (folder / "two").mkdir()
    (folder / "runs.json").write_text(json.dumps(runs))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*command, worker.__file__, folder / "runs.json", folder / "two"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return folder


def facts(out, name, processes, rank=0):
    found = json.loads((out / processes / f"{name}-{rank}.json").read_text())
    assert found["processes"] == {"one": 1, "two": 2}[processes]
    return found


def weights(out, name, processes, rank=0):
    return load_file(out / processes / f"{name}-{rank}.safetensors")


@pytest.mark.parametrize("name", [name for name in RUNS if name != "stock"])
def test_two_processes_train_as_one(out, name):
    one, two = facts(out, name, "one"), facts(out, name, "two")
    assert len(one["loss"]) == STEPS
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
    torch.testing.assert_close(weights(out, name, "two"), weights(out, name, "one"), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_both_ranks_end_with_the_same_bits(out, name):
    assert equal(weights(out, name, "two", 0), weights(out, name, "two", 1))


@pytest.mark.parametrize("name", ["composed", "composed_accumulated"])
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_frozen_does_not_move_by_a_bit_on_either_rank(out, name, rank):
    expected = [[4], [3, 4], [2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert facts(out, name, "two", rank)["moved"] == [depths for depths in expected for _ in range(2)]


@pytest.mark.parametrize("name", ["multitask", "multitask_accumulated"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_head_that_no_process_uses_does_not_decay(out, name, rank):
    start = worker.several_tasks(40)[0].state_dict()
    found = weights(out, name, "two", rank)
    assert torch.equal(found["heads.idle.weight"], start["heads.idle.weight"])
    assert not torch.equal(found["heads.small.weight"], start["heads.small.weight"])


@pytest.mark.parametrize("name", ["averaged", "sdv"])
def test_every_rank_has_the_teacher_and_the_ensemble_of_one_process(out, name):
    """`weights` holds them too, so that the tests above compare them between the ranks and with one process."""
    kept = [key for key in weights(out, name, "two") if key.startswith(("self_distillation/", "self_ensemble/"))]
    assert len(kept) > 100
    one, two = facts(out, name, "one"), facts(out, name, "two")
    assert max(one["gap"]) > 1e-4
    assert two["gap"] == pytest.approx(one["gap"], rel=1e-3, abs=1e-8)


def test_every_rank_evaluates_the_ensemble(out):
    found = [facts(out, "averaged", processes)["evaluations"] for processes in ("one", "two")]
    losses = [[log.get("eval_loss", log.get("eval_ensemble_loss")) for log in logs] for logs in found]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.skipif(not CAN_RESUME, reason="Trainer of transformers 5.17 cannot resume several CPU processes")
@pytest.mark.parametrize("rank", [0, 1])
def test_resumes_to_equal_bits(out, rank):
    assert len(facts(out, "resumed", "two", rank)["moved"]) == STEPS - 3
    assert equal(weights(out, "resumed", "two", rank), weights(out, "held", "two", rank))


def test_stock_trainer_doubles_loss_and_gradient_on_two_processes(out):
    """Why `StrategyTrainerMixin` scales the loss itself; when this fails, Transformers may have mended it."""
    one, two = facts(out, "stock", "one"), facts(out, "stock", "two")
    for key in ("loss", "grad_norm"):
        assert two[key][0] == pytest.approx(2 * one[key][0], rel=1e-4)
