"""One recipe with several seeds."""

import json
from statistics import fmean, stdev

import pytest
from transformers import AutoModelForSequenceClassification

from hf_ftstrategies.pipeline import fine_tuning
from hf_ftstrategies.pipeline.recipe import main, run_recipe
from tests.pipeline.tiny_run import recipe
from tests.tiny import KillAt, Killed, equal, snapshot

SHORT = {"max_steps": 6, "evaluations": 2, "unfreezing": "none"}
SEEDS = ["--seeds", "3", "1", "5"]


def weights(folder):
    return snapshot(AutoModelForSequenceClassification.from_pretrained(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and results of a run with three seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    return folder, run_recipe(recipe(folder, **SHORT), SEEDS)


def test_each_seed_is_the_run_with_that_seed(whole, tmp_path):
    folder, results = whole
    alone = run_recipe(recipe(tmp_path, dataset=str(folder / "topics.csv"), **SHORT), ["--seed", "1"])
    assert equal(weights(tmp_path / "out"), weights(folder / "out" / "seeds" / "1"))
    of_seeds = next(run for run in results["seeds"]["runs"] if run["seed"] == 1)
    assert of_seeds["metrics"]["test"]["accuracy"] == alone["metrics"]["test"]["accuracy"]
    assert not equal(weights(folder / "out" / "seeds" / "1"), weights(folder / "out" / "seeds" / "5"))


def test_the_best_on_validation_is_kept_and_all_are_reported(whole):
    folder, results = whole
    out = folder / "out"
    each = {seed: json.loads((out / "seeds" / str(seed) / "results.json").read_text()) for seed in (3, 1, 5)}
    best = max(each, key=lambda seed: each[seed]["selected"]["value"])
    assert results["seed"] == results["seeds"]["chosen"] == best
    assert results["metrics"] == each[best]["metrics"]
    assert equal(weights(out), weights(out / "seeds" / str(best)))
    tests = [one["metrics"]["test"]["loss"] for one in each.values()]
    assert results["seeds"]["metrics"]["test"]["loss"]["mean"] == fmean(tests)
    assert results["seeds"]["metrics"]["test"]["loss"]["std"] == stdev(tests) > 0
    assert results["time"]["train_seconds"] == sum(one["time"]["train_seconds"] for one in each.values())
    assert results == json.loads((out / "results.json").read_text())
    assert "3 seeds on one split" in (out / "README.md").read_text()
    assert (out / "pictures" / "seeds.png").exists()


def test_killed_in_the_second_seed_the_first_is_not_repeated(whole, tmp_path, monkeypatch):
    folder, straight = whole
    prepare, prepared = fine_tuning.prepare_fine_tuning, []

    def and_kill(run, args, source):
        stage = prepare(run, args, source)
        prepared.append(args.seed)
        if len(prepared) == 2:
            stage.trainer.add_callback(KillAt(5))
        return stage

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", and_kill)
    again = recipe(tmp_path, dataset=str(folder / "topics.csv"), **SHORT)
    with pytest.raises(Killed):
        run_recipe(again, SEEDS)
    resumed = run_recipe(again, SEEDS)
    assert prepared == [3, 1, 1, 5]
    assert resumed["seeds"] == straight["seeds"]
    assert equal(weights(tmp_path / "out"), weights(folder / "out"))


@pytest.mark.parametrize("seeds", [["1"], ["1", "1"], ["-1", "2"], ["1", str(2**32)]])
def test_seeds_that_are_none(tmp_path, capsys, seeds):
    with pytest.raises(SystemExit):
        main(recipe(tmp_path), ["--seeds", *seeds])
    assert "two or more different numbers" in capsys.readouterr().err
