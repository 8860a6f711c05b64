"""Random command lines of recipes: parsed, or refused with one `ValueError`; planned, or refused with one line."""

import contextlib
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hf_ftstrategies.cli import app
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.errors import hide_secrets
from hf_ftstrategies.pipeline.recipe import Recipe
from tests.bad_input.runs import error_of, tiny
from tests.fuzz.attempt import attempt
from tests.pipeline.tiny_run import csv_file, pretrained

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is deprecated and will be removed:FutureWarning"
)  # options of Trainer

RECIPE = Recipe("tiny", "Tiny", {"use_cpu": True, "report_to": "none"})
ACTIONS = [action for action in RECIPE._parser()._actions if action.dest != "help"]
OPTIONS = sorted(option for action in ACTIONS for option in action.option_strings)
# No NUL: no system passes it on a command line.
ODD = ["", "-1", "0", "1", "nan", "inf", "1e400", "True", "{", "{}", "[]", "null", "none", "../x", "\udcff", "9" * 5000]
TEXT = st.text(st.characters(exclude_characters="\0"), max_size=6)
VALUES = st.one_of(st.sampled_from(ODD), TEXT, st.integers().map(str), st.floats().map(str))
WORDS = st.one_of(st.sampled_from(OPTIONS), st.sampled_from(OPTIONS).map(lambda option: option[:-1]), VALUES)
RUN = {
    "text_column": st.sampled_from(["text", "label", "txt"]),
    "label_column": st.sampled_from(["text", "label", "txt"]),
    "task": st.sampled_from(["single_text", "text_pair", "regression", "multi_label", "x"]),
    "train_rows": st.integers(-1, 95),
    "validation_rows": st.integers(-1, 95),
    "test_rows": st.integers(-1, 95),
    "split_seed": st.integers(-1, 2**33),
    "max_length": st.integers(-1, 70),
    "truncation": st.sampled_from(["head", "tail", "half", "head_tail", "middle"]),
    "truncation_head": st.integers(-1, 20),
    "layers": st.sampled_from(["last", "first4", "last4", "all", "0", "-1", "0,2", "0,0", ",", "9"]),
    "layer_pooling": st.sampled_from(["concat", "mean", "max", "attention", ""]),
    "token_pooling": st.sampled_from(["cls", "mean", "max", "concat", ""]),
    "chunk_pooling": st.sampled_from(["none", "mean", "max", "attention", ""]),
    "head": st.sampled_from(["linear", "mlp", "bilstm", ""]),
    "max_chunks": st.integers(-1, 3),
    "chunk_stride": st.integers(-1, 20),
    "split_scheme": st.sampled_from(["standard", "zhang", ""]),
    "global_batch_size": st.integers(-1, 20),
    "unfreezing": st.sampled_from(["none", "gradual", "ulmfit", "x.yaml"]),
    "reinit_layers": st.integers(-1, 4),
    "layer_decay": st.floats(),
    "max_steps": st.integers(-1, 40),
}


@settings(max_examples=300)
@given(argv=st.lists(st.one_of(WORDS, st.tuples(st.sampled_from(OPTIONS), VALUES).map("=".join)), max_size=6))
def test_any_words(argv):
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        parsed, message = attempt(lambda: RECIPE.parse(argv))
    assert "usage" not in printed.getvalue()
    assert len(hide_secrets(argv)) == len(argv)
    if message is not None:
        return
    run, *_ = parsed
    assert isinstance(run, RunArguments)
    assert json.loads(json.dumps(RECIPE.settings(argv)))["recipe"] == "tiny"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.dest)
def test_odd_values_of_every_option(action):
    for value in [None, *ODD]:
        words = [action.option_strings[0]] + ([] if value is None else [value])
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            attempt(lambda words=words: RECIPE.parse(words))
        assert "usage" not in printed.getvalue()


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    pretrained(folder / "model")
    csv_file(folder / "topics.csv")
    presets = tiny(folder, folder / "out", evaluations=None).presets
    path = folder / "tiny.py"
    path.write_text(f"from hf_ftstrategies.pipeline.recipe import Recipe\nRECIPE = Recipe('t', 'T', {presets!r})\n")
    return path


@settings(max_examples=60)
@given(names=st.lists(st.sampled_from(sorted(RUN)), min_size=1, max_size=3, unique=True), data=st.data())
def test_runs_are_planned_or_refused(script, names, data):
    words = [word for name in names for word in (f"--{name}", str(data.draw(RUN[name])))]
    before = sorted(script.parent.rglob("*"))
    planned = CliRunner().invoke(app, ["plan", str(script), *words])
    if planned.exit_code == 0:
        assert "steps" in planned.stdout
    else:
        error_of(planned.exit_code, planned.stderr)
    assert sorted(script.parent.rglob("*")) == before
