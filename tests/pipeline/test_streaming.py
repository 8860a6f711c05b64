"""Recipes over a stream: resumed to equal bits wherever they stopped, and the same on two processes as on one."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from hf_ftstrategies.pipeline import fine_tuning
from hf_ftstrategies.pipeline.recipe import run_recipe
from tests.pipeline.tiny_run import TOPICS, recipe
from tests.tiny import KillAt, Killed, equal, snapshot

STREAMED = {
    "streaming": True,
    "max_steps": 12,
    "evaluations": 3,
    "unfreezing": "none",
    "load_best_model_at_end": False,
}


def lines(rows, seed):
    """Texts of 2 to 14 words, so that batches are padded to different lengths."""
    draw = random.Random(seed)
    for row in range(rows):
        first = 30 * (row % 3)
        words = [f"w{draw.randrange(first, first + 30)}" for _ in range(draw.randrange(2, 15))]
        yield " ".join(words) + f",{TOPICS[row % 3]}"


def streamed(tmp_path, **presets):
    """72 rows, one of them empty; 12 steps of 8 examples are a pass and a part."""
    folder = tmp_path / "topics"
    folder.mkdir(exist_ok=True)
    for split, rows, bad in (("train", 71, [",fruit"]), ("validation", 12, []), ("test", 12, [])):
        content = ["text,label", *lines(rows, seed=rows), *bad]
        (folder / f"{split}.csv").write_text("\n".join(content) + "\n")
    return recipe(tmp_path, **{"dataset": str(folder), "on_bad_rows": "drop", **STREAMED, **presets})


def weights(folder):
    return snapshot(AutoModelForSequenceClassification.from_pretrained(folder))


def test_what_is_said_about_a_stream(tmp_path):
    results = run_recipe(streamed(tmp_path), [])
    assert results["dataset"]["splits"] == {"train": 71, "validation": 12, "test": 12}
    words = [line.count(" ") + 1 for line in lines(71, 71)]
    assert results["dataset"]["truncated_share"]["train"] == pytest.approx(np.mean(np.array(words) > 14))
    assert results["baseline"]["accuracy"] == pytest.approx(1 / 3)
    notes = " | ".join(results["dataset"]["notes"])
    assert "train: streamed, 96 examples in 2 passes over 71 rows" in notes
    assert "not looked for in a stream: repeated texts" in notes
    assert "dropped: train: 1 row(s) with an empty text in column 'text' (row 71)" in notes
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["training"]["total_steps"] == plan["training"]["steps_per_epoch"] == 12
    assert "streamed" in (tmp_path / "out" / "report.html").read_text()


def test_validation_from_the_stream(tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines(60, 0)]))
    run = streamed(tmp_path, dataset=str(tmp_path / "rows.csv"), max_steps=2, evaluations=1)
    results = run_recipe(run, ["--validation_rows", "9", "--train_rows", "12"])
    assert results["dataset"]["splits"] == {"train": 12, "validation": 9}
    assert "validation: rows 0 to 8 of the stream, which training skips" in results["dataset"]["notes"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"chunk_pooling": "mean", "max_length": 6},
    ],
    ids=["plain", "accumulated", "chunks"],
)
@pytest.mark.parametrize("step", [6, 11])
def test_resumed_to_equal_bits(tmp_path, monkeypatch, step, settings):
    """Killed in the first pass and in the second; the checkpoints are those of steps 4 and 8."""
    straight = run_recipe(streamed(tmp_path, output_dir=str(tmp_path / "straight"), **settings), [])
    prepare = fine_tuning.prepare_fine_tuning

    def and_kill(run, args, source):
        stage = prepare(run, args, source)
        stage.trainer.add_callback(KillAt(step))
        return stage

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", and_kill)
    with pytest.raises(Killed):
        run_recipe(streamed(tmp_path, **settings), [])
    monkeypatch.undo()
    resumed = run_recipe(streamed(tmp_path, **settings), [])
    for key in ("dataset", "metrics", "baseline"):
        assert resumed[key] == straight[key]
    assert equal(weights(tmp_path / "straight"), weights(tmp_path / "out"))


@pytest.mark.parametrize("settings", [{}, {"early_stopping_patience": 1, "learning_rate": 1e-9}])
def test_killed_after_training_nothing_is_trained_again(tmp_path, monkeypatch, settings):
    best = {"load_best_model_at_end": True}
    straight = run_recipe(streamed(tmp_path, output_dir=str(tmp_path / "straight"), **best, **settings), [])
    monkeypatch.setattr(fine_tuning.FineTuning, "evaluate", lambda self: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        run_recipe(streamed(tmp_path, **best, **settings), [])
    monkeypatch.undo()
    resumed = run_recipe(streamed(tmp_path, **best, **settings), [])
    for key in ("metrics", "selected", "baseline"):
        assert resumed[key] == straight[key]
    if not settings:  # an early stop may have read a batch ahead, which may drop a row more
        assert resumed["dataset"] == straight["dataset"]
    assert equal(weights(tmp_path / "straight"), weights(tmp_path / "out"))


def without_dropout(model):
    config = json.loads((model / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (model / "config.json").write_text(json.dumps(config))


def test_two_processes_train_as_one(tmp_path):
    """The same batches, although the halves of a batch are padded to different lengths."""
    settings = {"optim": "sgd", "reinit_layers": 0}
    run = streamed(tmp_path, output_dir=str(tmp_path / "one"), per_device_train_batch_size=8, **settings)
    without_dropout(tmp_path / "model")
    one = run_recipe(run, [])
    presets = {**run.presets, "output_dir": str(tmp_path / "two"), "per_device_train_batch_size": 4}
    script = tmp_path / "two.py"
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe, main\nmain(Recipe('tiny', 'Tiny', {presets!r}))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    two = json.loads((tmp_path / "two" / "results.json").read_text())
    assert two["hardware"]["processes"] == 2
    losses = [[log["loss"] for log in found["history"] if "loss" in log] for found in (one, two)]
    assert len(losses[0]) == 12
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    torch.testing.assert_close(weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=0, atol=1e-5)
    assert two["dataset"] == one["dataset"]


REFUSED = [
    (["--max_steps", "-1"], "give max_steps"),
    (["--dataloader_num_workers", "2"], "dataloader_num_workers is 2"),
    (["--split_scheme", "zhang"], "leave out streaming"),
    (["--feature_based", "True"], "leave out streaming"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused_before_anything_is_loaded(tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(fine_tuning, "find_pretrained", None)
    with pytest.raises(ValueError, match=message):
        run_recipe(streamed(tmp_path), options)


def test_a_bad_row_in_the_middle_is_one_error(tmp_path):
    with pytest.raises(ValueError, match=r"row 71 \(counted from 0\) with an empty text"):
        run_recipe(streamed(tmp_path, on_bad_rows="error"), [])
