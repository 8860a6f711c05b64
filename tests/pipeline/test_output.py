import json
import os

import pytest

from hf_ftstrategies.pipeline.output import OutputFolder, newest_complete_checkpoint, set_torn_aside

SETTINGS = {"layer_decay": 0.9, "rows": [1, 2]}

OTHERS = ['{"settings": [], "status": "running"}', '{"settings": {}, "status": "done"}', "9" * 5000]


def test_claimed_resumed_finished(tmp_path):
    folder = OutputFolder(tmp_path / "a" / "b", SETTINGS)
    assert not folder.is_finished
    assert not OutputFolder(tmp_path / "a" / "b", SETTINGS).is_finished
    folder.write_json("results.json", {"x": 1})
    folder.finish()
    again = OutputFolder(tmp_path / "a" / "b", SETTINGS)
    assert again.is_finished
    assert again.read_json("results.json") == {"x": 1}


@pytest.mark.parametrize("content", [None, "", "[" * 15_000])
def test_a_finished_run_whose_results_are_gone(tmp_path, content):
    OutputFolder(tmp_path, SETTINGS).finish()
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json' cannot be read .*choose another output_dir"):
        OutputFolder(tmp_path, SETTINGS).read_json("results.json")


def test_another_run_is_not_touched(tmp_path):
    (OutputFolder(tmp_path, SETTINGS).checkpoints / "checkpoint-1").mkdir(parents=True)
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match=r"layer_decay: 0\.9 there, 0\.8 now"):
        OutputFolder(tmp_path, {**SETTINGS, "layer_decay": 0.8})
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_run_without_a_checkpoint_may_be_replaced(tmp_path):
    OutputFolder(tmp_path, SETTINGS)
    OutputFolder(tmp_path, {**SETTINGS, "layer_decay": 0.8})
    assert json.loads((tmp_path / "manifest.json").read_text())["settings"]["layer_decay"] == 0.8


def test_something_else_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"not empty \(thesis\.tex\)"):
        OutputFolder(tmp_path, SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"settings": {}}', "\x00", "[" * 15_000, *OTHERS])
def test_a_torn_manifest(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match="cannot be read"):
        OutputFolder(tmp_path, SETTINGS)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be made"):
        OutputFolder(tmp_path / "file", SETTINGS)
    with pytest.raises(ValueError, match="cannot be made"):
        OutputFolder(tmp_path / "file" / "below", SETTINGS)


def test_no_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anywhere
    with pytest.raises(ValueError, match="no permission"):
        OutputFolder(tmp_path, SETTINGS)


def test_a_torn_checkpoint_is_passed_over(tmp_path, caplog):
    assert newest_complete_checkpoint(tmp_path / "none") is None
    for step, state in ((9, "{}"), (10, "{}"), (100, '{"torn'), (101, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    assert newest_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert [record.args[0].name for record in caplog.records] == ["checkpoint-101", "checkpoint-100"]


def test_settings_are_compared_as_json(tmp_path):
    OutputFolder(tmp_path, {"pair": (1, 2)})
    assert json.loads((tmp_path / "manifest.json").read_text())["settings"] == {"pair": [1, 2]}
    OutputFolder(tmp_path, {"pair": [1, 2]})


def test_torn_checkpoints_are_set_aside_and_kept(tmp_path):
    for attempt in range(2):
        (tmp_path / "checkpoint-1").mkdir()
        (tmp_path / "checkpoint-1" / "part").write_text(str(attempt))
        set_torn_aside(tmp_path)
    assert {path.parent.name: path.read_text() for path in tmp_path.glob("*/part")} == {
        "torn-checkpoint-1": "0",
        "torn-torn-checkpoint-1": "1",
    }
    set_torn_aside(tmp_path / "none")
