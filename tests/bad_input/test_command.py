"""What can be wrong with `hf-ftstrategies plan` itself, with recipes as scripts, and with secrets on command lines."""

import json

import pytest
from typer.testing import CliRunner

from hf_ftstrategies.cli import app
from hf_ftstrategies.pipeline.errors import hide_secrets, hide_tokens, print_error
from hf_ftstrategies.pipeline.recipe import Recipe, main
from tests.bad_input.runs import contents, error_of, run, tiny

TOKEN = "hf_" + "aB3" * 12
RECIPE = "from hf_ftstrategies.pipeline.recipe import Recipe\nRECIPE = Recipe('tiny', 'Tiny', {presets!r})\n"

# name, content of the script, options, what the error line must hold
COMMANDS = [
    ("no script", None, "", "There is no recipe"),
    ("no Python", "\x7fELF", "", "cannot be run as a recipe: SyntaxError"),
    ("half a script", "RECIPE = Recipe(", "", "cannot be run as a recipe: SyntaxError"),
    ("NUL", "x = '\0'", "", "cannot be run as a recipe"),
    ("no import", "import no_such_package", "", "ModuleNotFoundError: No module named 'no_such_package'"),
    ("an error", "1 / 0", "", "ZeroDivisionError: division by zero"),
    ("no recipe", "x = 1", "", "defines no RECIPE"),
    ("another recipe", "RECIPE = 'imdb'", "", "defines no RECIPE"),
    ("a slip in a preset", RECIPE.format(presets={"layer_deca": 1}), "", "Did you mean 'layer_decay'?"),
    ("preset of another type", RECIPE.format(presets={"layer_decay": "high"}), "", "invalid float value: 'high'"),
    ("no folder for JSON", "", "--json none/plan.json", "none/plan.json"),
    ("no folder for the picture", "", "--picture none/plan.png", "none/plan.png"),
    ("no such picture", "", "--picture plan.xyz", "xyz"),
    ("schedule that is there", "", "--write-schedule {base}/topics.csv", "exists: choose another name"),
    ("no folder for the schedule", "", "--write-schedule none/phases.yaml", "none/phases.yaml"),
]


@pytest.mark.parametrize(
    ("script", "options", "expected"), [c[1:] for c in COMMANDS], ids=[c[0].replace(" ", "_") for c in COMMANDS]
)
def test_plan(base, tmp_path, script, options, expected):
    path = tmp_path / "tiny.py"
    if script is not None:
        path.write_text(script or RECIPE.format(presets=tiny(base, tmp_path / "out").presets))
    before = contents(tmp_path, base)
    planned = CliRunner().invoke(app, ["plan", str(path), *options.format(base=base).split()])
    assert expected in error_of(planned.exit_code, planned.stderr)
    assert contents(tmp_path, base) == before


def test_debug_shows_where_it_comes_from(base, tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(RECIPE.format(presets=tiny(base, tmp_path / "out", report_to="swanlab").presets))
    planned = CliRunner().invoke(app, ["plan", str(path), "--debug"])
    assert isinstance(planned.exception, ValueError)
    assert isinstance(planned.exception.__cause__, RuntimeError)


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "..", ".hidden", "", "a b", "a\0b", "a\nb", "C:\\x"])
def test_names_of_recipes_are_folders(name):
    with pytest.raises(ValueError, match="is also a folder"):
        Recipe(name, "title")


def test_brackets_and_control_characters_are_shown_as_they_are(capsys):
    print_error("no [/bold] in 'a[red]b\\[c]'")
    assert capsys.readouterr().err == "error: no [/bold] in 'a[red]b\\[c]'\n"


def test_lines_of_dependencies_become_one_and_our_lists_stay(capsys):
    with pytest.raises(SystemExit):
        main(Recipe("tiny", "Tiny", {"use_cpu": True, "load_best_model_at_end": True}), [])
    assert capsys.readouterr().err.count("\n") == 1
    print_error("bad rows:\n  row 1\nRepair them.")
    assert capsys.readouterr().err == "error: bad rows:\n  row 1\nRepair them.\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--hub_token", "secret", "--seed", "1"], ["--hub_token", "***", "--seed", "1"]),
        (["--hub-token", "secret"], ["--hub-token", "***"]),
        (["--hub_token=secret"], ["--hub_token=***"]),
        (["--model", TOKEN, f"x={TOKEN}"], ["--model", "***", "x=***"]),
        (["--hub_token"], ["--hub_token"]),
        (["--hub_model_id", "me/hf_model"], ["--hub_model_id", "me/hf_model"]),
    ],
)
def test_secrets_are_hidden(words, shown):
    assert hide_secrets(words) == shown
    assert TOKEN not in hide_tokens(" ".join(words))


def test_a_token_gets_into_no_file_and_no_message(base, tmp_path):
    out, steps = tmp_path / "out", ["--max_steps", "2"]
    assert run(tiny(base, out), [*steps, "--hub_token", TOKEN])[0] == 0
    texts = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert not [path for path, content in texts.items() if TOKEN.encode() in content]
    assert "--hub_token" not in json.loads((out / "results.json").read_text())["command"]
    for words in (["--hub_tokn", TOKEN], [TOKEN], ["--model", TOKEN], [f"--hub_tokn={TOKEN}"], ["--seed", TOKEN]):
        assert TOKEN not in error_of(*run(tiny(base, tmp_path / "other"), words))
