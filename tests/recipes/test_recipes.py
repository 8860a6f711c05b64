import ast
import json
import re
import runpy
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from hf_ftstrategies.cli import load_recipe
from hf_ftstrategies.data.registry import REGISTRY
from hf_ftstrategies.pipeline.recipe import run_recipe, take_option
from tests.data.tiny import bert_with_mask
from tests.pipeline import tiny_pretraining
from tests.pipeline.tiny_run import csv_file, pretrained

RECIPES = sorted(Path(__file__).parents[2].joinpath("recipes").glob("*.py"))
each_recipe = pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])


@each_recipe
def test_twenty_steps_on_tiny_data(path, tmp_path):
    options = {
        "model": pretrained(tmp_path / "model", bert_with_mask()),
        "dataset": csv_file(tmp_path / "topics.csv", rows=60),
        "output_dir": tmp_path / "out",
        "train_rows": 24,
        "validation_rows": 6,
        "test_rows": 6,
        "max_length": 16,
        "truncation_head": 4,
        "max_steps": 20,
        "evaluations": 1,
        "use_cpu": True,
        "disable_tqdm": True,
        # of those that pre-train further first
        "pretraining_steps": 4,
        "pretraining_warmup_steps": 1,
        "pretraining_max_length": 32,
        "pretraining_batch_size": 8,
        "corpus_rows": 20,
    }
    recipe = load_recipe(str(path))
    if recipe.presets.get("further_pretraining") in ("in_domain", "cross_domain"):
        options["further_pretraining"] = options["dataset"]  # a tiny file has no domain
    if "multitask" in recipe.presets:
        together = csv_file(tmp_path / "together.csv", rows=60, seed=1)
        options |= {"multitask": f"{options['dataset']},{together}", "multitask_steps": 4}
    argv = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    results = run_recipe(recipe, argv)
    assert results["metrics"]["test"].keys() >= {"accuracy", "macro_f1", "loss"}
    assert results["history"][-1]["step"] == 20
    assert (tmp_path / "out" / "report.html").exists()
    assert results["command"].split()[:3] == ["accelerate", "launch", f"recipes/{path.name}"]


def test_few_shot_compares_shares_of_the_labels_with_and_without(tmp_path):
    """The pre-trained model of the run with all labels serves all shares; nothing is done twice."""
    script = runpy.run_path(str(RECIPES[0].parent / "few_shot_itpt.py"))
    recipe = tiny_pretraining.recipe(tiny_pretraining.prepare(tmp_path), pretraining_steps=2)
    points = script["compare"]([], [1.0, 0.5], recipe)
    assert [(p["share"], p["rows"], p["further_pretrained"]) for p in points] == [
        (0.5, 21, False), (0.5, 21, True), (1.0, 42, False), (1.0, 42, True),
    ]  # fmt: skip
    whole = json.loads((tmp_path / "out" / "results.json").read_text())
    assert points[-1]["metrics"]["test"] == whole["metrics"]["test"]["accuracy"]
    assert json.loads((tmp_path / "out" / "few_shot.json").read_text()) == points
    assert (tmp_path / "out" / "few_shot.png").exists()
    before = (tmp_path / "out" / "few_shot.png").stat().st_mtime_ns
    assert script["compare"]([], [1.0, 0.5], recipe) == points
    assert (tmp_path / "out" / "few_shot.png").stat().st_mtime_ns > before


@each_recipe
def test_presets_name_a_known_data_set_and_the_docstring_launches_the_script(path):
    recipe = load_recipe(str(path))
    assert recipe.presets["dataset"] in (*REGISTRY, "")
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert f"recipes/{path.name}" in docstring
    for number in re.findall(r"[\d.]+ %", recipe.published):
        assert number in docstring


@pytest.mark.parametrize("path", sorted(RECIPES[0].parent.glob("accelerate/*.yaml")), ids=lambda path: path.stem)
def test_accelerate_reads_the_configurations(path):
    config = load_config_from_file(str(path))
    assert config.num_machines == 1
    assert config.num_processes == 4
    assert config.distributed_type.value == {"ddp": "MULTI_GPU", "fsdp2": "FSDP"}.get(path.stem, "DEEPSPEED")


def test_suns_presets_are_the_papers():
    for name in ("imdb", "trec", "yelp_polarity", "yelp_full", "yahoo_answers", "ag_news", "dbpedia", "sogou"):
        run, args, *_ = load_recipe(str(RECIPES[0].parent / f"{name}.py")).parse(["--use_cpu", "True"])
        assert (run.global_batch_size, run.max_length, run.truncation_head) == (24, 512, 128)
        assert (args.learning_rate, args.num_train_epochs, args.layer_decay) == (2e-5, 4, 0.95)
        assert args.get_warmup_steps(1000) == 100


@pytest.mark.parametrize(
    ("argv", "value", "rest"),
    [
        (["--task", "cola", "--seed", "1"], "cola", ["--seed", "1"]),
        (["--seed", "1"], "rte", ["--seed", "1"]),
        (["--seed", "1", "--task", "rte"], "rte", ["--seed", "1"]),
    ],
)
def test_take_option(argv, value, rest):
    assert take_option(argv, "--task", ("cola", "rte"), "rte") == (value, rest)


@pytest.mark.parametrize("argv", [["--task"], ["--task", "cila"]])
def test_take_option_refuses(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        take_option(argv, "--task", ("cola", "rte"), "rte")
    assert ended.value.code == 2
    assert "known are cola, rte" in capsys.readouterr().err
