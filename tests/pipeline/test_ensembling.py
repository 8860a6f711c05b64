import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
from typer.testing import CliRunner

from hf_ftstrategies.cli import app
from hf_ftstrategies.evaluation.ensembles import average_models, load_trained, vote
from hf_ftstrategies.pipeline import fine_tuning
from hf_ftstrategies.pipeline.ensembling import evaluate_ensemble
from hf_ftstrategies.pipeline.recipe import run_recipe
from tests.pipeline.tiny_run import csv_file, recipe
from tests.tiny import equal, snapshot


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a recipe with other seeds; the first keeps its checkpoints."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for seed in (1, 2):
        out = folder / f"seed{seed}"
        made = recipe(folder, output_dir=str(out), seed=seed, unfreezing="none", layer_decay=1.0)
        found[str(out)] = run_recipe(made, [])
    return folder, found


def test_each_model_the_vote_and_the_average(runs, tmp_path):
    folder, found = runs
    facts = evaluate_ensemble(list(found), output_dir=str(tmp_path / "mean"))
    assert list(facts["metrics"]) == [*found, "vote", "average"]
    for out, results in found.items():  # the same rows and features as the recipe's own evaluation
        for name, value in facts["metrics"][out].items():
            assert value == results["metrics"]["test"][name]
    made = recipe(folder, output_dir=str(tmp_path / "unused"))
    rows = fine_tuning.prepare_fine_tuning(*made.parse([])[:2]).splits["test"]
    logits = [by_hand(load_trained(out), rows) for out in found]
    for name, answer in (("vote", vote(logits)), ("average", by_hand(average_models(list(found)), rows))):
        assert facts["metrics"][name]["accuracy"] == np.mean(answer.argmax(-1) == rows["labels"])
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mean")
    assert equal(snapshot(saved), snapshot(average_models(list(found))))
    assert len(AutoTokenizer.from_pretrained(tmp_path / "mean")) == len(
        AutoTokenizer.from_pretrained(next(iter(found)))
    )
    classify = pipeline("long-text-classification", str(tmp_path / "mean"), trust_remote_code=True)
    assert classify("w1 w2")[0]["label"] in saved.config.id2label.values()
    assert json.loads((tmp_path / "mean" / "ensemble.json").read_text()) == facts


def by_hand(model, rows):
    with torch.no_grad():
        return np.concatenate([model(torch.tensor([ids])).logits.numpy() for ids in rows["input_ids"]])


def test_checkpoints_of_one_run_on_validation(runs):
    out = next(iter(runs[1]))
    checkpoints = sorted(str(path) for path in runs[0].glob("seed1/checkpoints/checkpoint-*"))[-2:]
    facts = evaluate_ensemble(checkpoints, with_vote=False, split="validation")
    assert list(facts["metrics"]) == [*checkpoints, "average"]
    assert facts["rows"] == runs[1][out]["dataset"]["splits"]["validation"]


def test_another_data_set_takes_all_its_rows(runs, tmp_path):
    other = str(csv_file(tmp_path / "other.csv", rows=60, seed=9))
    facts = evaluate_ensemble(list(runs[1]), with_average=False, dataset=other)
    assert facts["rows"] == 12
    assert list(facts["metrics"])[-1] == "vote"


def run(*words):
    return CliRunner().invoke(app, ["ensemble", *map(str, words)])


@pytest.mark.parametrize(
    ("options", "rows"), [((), ["vote", "average"]), (("--vote",), ["vote"]), (("--average",), ["average"])]
)
def test_command(runs, tmp_path, monkeypatch, options, rows):
    monkeypatch.chdir(runs[0])
    result = run("seed1", "seed2", *options)
    assert result.exit_code == 0, result.output
    for name in ("vote", "average"):
        assert (name in result.output) is (name in rows)
    assert "test, 18 rows of" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{a}", "{a}"], "at least 2 different models"),
        (["{a}", "{new}"], "has no manifest.json that names its data set"),
        (["{a}", "{new}", "--dataset", "{csv}"], "holds no model"),
        (["{a}", "{b}", "--split", "dev"], "has no labelled split 'dev', but train, validation, test"),
        (["{a}", "{b}", "--vote", "--output_dir", "{new}"], "a vote is no model"),
        (["{a}", "{b}", "--output_dir", "{a}"], "is there already and not empty"),
        (["{a}", "{b}", "--dataset", "{swapped}"], "has the labels fruit, metal, weather, the data set"),
        (["{a}", "{other}"], "train_rows is None in '.*' and 30 in"),
    ],
)
def test_bad_input_is_one_line_and_status_2(runs, tmp_path, words, message):
    folder, found = runs
    (tmp_path / "new").mkdir()
    text = csv_file(tmp_path / "swapped.csv").read_text()
    (tmp_path / "swapped.csv").write_text(text.replace("fruit", "zinc"))
    (tmp_path / "other").mkdir()
    manifest = json.loads((folder / "seed1" / "manifest.json").read_text())
    manifest["settings"]["train_rows"] = 30
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    places = {"a": next(iter(found)), "b": next(reversed(found)), "csv": folder / "topics.csv"}
    places |= {name: tmp_path / name for name in ("new", "other")} | {"swapped": tmp_path / "swapped.csv"}
    result = run(*[word.format(**places) for word in words])
    assert result.exit_code == 2, result.output
    found_text = " ".join(result.output.split())
    start, *rest = message.split(".*")
    assert start in found_text
    assert all(part in found_text for part in rest)
