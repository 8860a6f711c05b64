import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hf_ftstrategies.cli import app
from tests.pipeline.tiny_run import csv_file, pretrained

RECIPE = """
from hf_ftstrategies.pipeline.recipe import Recipe
RECIPE = Recipe("tiny", "Tiny", {presets!r})
"""


@pytest.fixture
def script(tmp_path):
    presets = {
        "model": str(pretrained(tmp_path / "model")),
        "dataset": str(csv_file(tmp_path / "topics.csv")),
        "max_length": 16,
        "truncation_head": 4,
        "use_cpu": True,
        "unfreezing": "ulmfit",
    }
    path = tmp_path / "tiny.py"
    path.write_text(RECIPE.format(presets=presets))
    return str(path)


def run(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


def test_plan_writes_what_was_asked_and_nothing_else(script, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    files = [tmp_path / name for name in ("plan.png", "plan.json", "phases.yaml")]
    result = run(
        script, "--picture", files[0], "--json", files[1], "--write-schedule", files[2], "--layer_decay", "0.9"
    )
    assert result.exit_code == 0, result.output
    assert "block 3" in result.output
    assert json.loads(files[1].read_text())["strategies"][0]["settings"]["decay"] == 0.9
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    assert list((tmp_path / "empty").iterdir()) == []
    again = run(script, "--unfreezing", files[2], "--num_train_epochs", "4")
    assert again.exit_code == 0
    assert "3 phases" in again.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{script}", "--layer_decy", "0.9"], "Did you mean '--layer_decay'"),
        (["{script}x"], "There is no recipe"),
        (["{model}"], "There is no recipe"),
        (["{script}", "--reinit_layers", "7"], "has 3 blocks"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script, tmp_path, words, message):
    result = run(*[word.format(script=script, model=tmp_path / "model") for word in words])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_script_without_a_recipe(tmp_path):
    (tmp_path / "other.py").write_text("x = 1\n")
    result = run(tmp_path / "other.py")
    assert result.exit_code == 2
    assert "defines no RECIPE" in result.output


def test_import_and_help_do_not_load_torch():
    code = "import sys, hf_ftstrategies, hf_ftstrategies.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names():
    import hf_ftstrategies

    for name in hf_ftstrategies.__all__:
        assert getattr(hf_ftstrategies, name) is not None
    assert "LayerMap" in dir(hf_ftstrategies)
    with pytest.raises(AttributeError, match="NoSuchName"):
        hf_ftstrategies.NoSuchName  # noqa: B018
