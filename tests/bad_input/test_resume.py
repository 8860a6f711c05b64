"""A run that was killed, then damaged or asked for something else: refused without a loss, or resumed from before."""

import json
import shutil

import pytest

from hf_ftstrategies import StrategyTrainer
from hf_ftstrategies.pipeline import fine_tuning
from tests.bad_input.makers import rows
from tests.bad_input.runs import contents, error_of, run, tiny
from tests.faults.harness import step_of
from tests.tiny import arguments, tiny_bert
from tests.tiny import rows as token_rows

SETTINGS = {
    "layer_decay": 0.9,
    "unfreezing": "ulmfit",
    "unfreeze_every": "0.1",
    "early_stopping_patience": 9,
    "evaluations": 4,
    "load_best_model_at_end": True,
}


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def killed(base, tmp_path_factory):
    """The output folder of a run that was killed at the end of its training, with four checkpoints."""
    out = tmp_path_factory.mktemp("killed") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fine_tuning.FineTuning, "evaluate", lambda self: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(tiny(base, out, **SETTINGS), [])
    return out


@pytest.fixture
def copy(killed, tmp_path):
    return shutil.copytree(killed, tmp_path / "out")


def newest(out):
    return max((out / "checkpoints").glob("checkpoint-*"), key=step_of)


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def cut(path, size=-20):
    path.write_bytes(path.read_bytes()[:size])


def each(out, name, change):
    for checkpoint in (out / "checkpoints").glob("checkpoint-*"):
        change(checkpoint / name)


# name, what was done to the folder, options of the next run, what the error line must hold
REFUSED = [
    ("other strategies", None, "--reinit_layers 1", "reinit_layers: absent there, 1 now"),
    ("other model", None, "--model {other}", "model: "),
    ("other data", None, "--dataset {data}", "holds a run with other settings"),
    ("other seed", None, "--seed 7", "seed: "),
    (
        "newer format",
        lambda out: edit(newest(out) / "strategies.json", format=2),
        "",
        "resume with the version that wrote",
    ),
    ("no state", lambda out: edit(newest(out) / "strategies.json", states={}), "", "resume from another checkpoint"),
    ("state cut", lambda out: cut(newest(out) / "strategies.json"), "", "resume from another checkpoint"),
    (
        "state of another run",
        lambda out: edit(newest(out) / "strategies.json", fingerprint={"total_steps": 3}),
        "",
        "was made by another plan: total_steps: 3 in the checkpoint",
    ),
    ("state lost", lambda out: (newest(out) / "strategies.json").unlink(), "", "has no strategies.json"),
    ("manifest cut", lambda out: cut(out / "manifest.json"), "", "choose another output_dir"),
]
DAMAGED = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


@pytest.mark.parametrize(("change", "options", "expected"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(base, copy, tmp_path, change, options, expected):
    if change is not None:
        change(copy)
    shutil.copytree(base / "model", tmp_path / "other")
    (tmp_path / "data.csv").write_text(rows(*["w1 w2,a", "w3,b"] * 20))
    before = contents(tmp_path, base)
    words = options.format(other=tmp_path / "other", data=tmp_path / "data.csv").split()
    assert expected in error_of(*run(tiny(base, copy, **SETTINGS), words))
    assert contents(tmp_path, base) == before


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_checkpoint_is_passed_over(base, copy, caplog, name):
    last = newest(copy)
    cut(last / name)
    status, printed = run(tiny(base, copy, **SETTINGS), [])
    assert status == 0, printed
    assert any(record.args and record.args[0] == last for record in caplog.records)
    assert (copy / "results.json").exists()


def test_with_damaged_checkpoints_alone_it_begins_anew(base, copy):
    """As after a kill in the midst of the first checkpoint."""
    each(copy, "model.safetensors", cut)
    damaged = sorted(path.name for path in (copy / "checkpoints").iterdir())
    status, printed = run(tiny(base, copy, **SETTINGS), [])
    assert status == 0, printed
    assert sorted(path.name for path in (copy / "checkpoints").glob("torn-*")) == [f"torn-{name}" for name in damaged]
    history = json.loads((copy / "results.json").read_text())["history"]
    assert history[0]["step"] < step_of(damaged[0])


def test_results_of_a_finished_run_that_were_lost(base, copy):
    assert run(tiny(base, copy, **SETTINGS), [])[0] == 0
    cut(copy / "results.json")
    before = contents(copy)
    assert "though its run is finished" in error_of(*run(tiny(base, copy, **SETTINGS), []))
    assert contents(copy) == before


# --- The library: what a checkpoint of somebody else says ---


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({"layers": 2}, {}, r"groups: .* in the checkpoint"),
        ({"hidden_size": 32}, {}, r"groups\[0\]\.parameters: .* in the checkpoint"),
        ({}, {"reinit_layers": 1}, r"strategies\.reinit: absent in the checkpoint"),
        ({}, {"bias_correction": False}, "optimizer: AdamW"),
    ],
)
def test_a_checkpoint_of_another_training(tmp_path, model, settings, message):
    def trainer(folder, model, **settings):
        args = arguments(folder, layer_decay=0.9, save_strategy="steps", save_steps=3, **settings)
        return StrategyTrainer(tiny_bert(**model), args, train_dataset=token_rows())

    trainer(tmp_path / "first", {}).train()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path / "second", model, **settings).train(str(tmp_path / "first" / "checkpoint-3"))
    assert contents(tmp_path) == before
