"""Several tasks together, then the run's own."""

import json
import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoModel

from hf_ftstrategies import MultiTaskClassifier
from hf_ftstrategies.pipeline import stages
from hf_ftstrategies.pipeline.multitask import prepare_multitask
from hf_ftstrategies.pipeline.multitask_arguments import MultiTaskArguments
from hf_ftstrategies.pipeline.recipe import main, run_recipe
from tests.pipeline.tiny_run import csv_file, recipe
from tests.tiny import StopAt, equal, snapshot

SHORT = {"max_steps": 4, "evaluations": 1, "unfreezing": "none"}
RATE = {"multitask_learning_rate": 3e-2, "multitask_epochs": 3}


def tiny(folder, **presets):
    """A recipe over topics.csv, and together with it other.csv."""
    csv_file(folder / "other.csv", rows=60, seed=5)
    tasks = f"{folder / 'topics.csv'},{folder / 'other.csv'}"
    return recipe(folder, **{"multitask": tasks, **RATE, **SHORT, **presets})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and results of a run with both stages."""
    folder = tmp_path_factory.mktemp("multitask")
    return folder, run_recipe(tiny(folder), [])


def test_both_tasks_are_learned_and_scored(whole):
    """The scores counted again with the saved model."""
    folder, results = whole
    saved, facts = folder / "out" / "multitask", results["multitask"]
    stage = json.loads((saved / "results.json").read_text())
    assert facts == stage["multitask"]
    assert facts["steps"] == stage["selected"]["step"] == 3 * (63 // 8 + 42 // 8)
    for name in ("topics", "other"):
        model = MultiTaskClassifier.from_pretrained(saved, active_task=name)
        run, args, *_ = recipe_of(folder, f"{name}.csv").parse([])
        test = stages.prepare_fine_tuning(run, args).splits["test"]
        guesses = model(torch.tensor(test["input_ids"])).logits.argmax(-1)
        accuracy = (guesses == torch.tensor(test["labels"])).float().mean().item()
        assert accuracy == pytest.approx(facts["tasks"][name]["metrics"]["test"]["accuracy"])
        assert accuracy > facts["tasks"][name]["baseline"]["accuracy"] + 0.2
    scores = [task["metrics"]["test"]["accuracy"] for task in facts["tasks"].values()]
    assert stage["metrics"]["test"]["mean_score"] == pytest.approx(sum(scores) / 2)


def recipe_of(folder, name):
    """The fine-tuning on one of the files, in a folder of its own."""
    (folder / name.partition(".")[0]).mkdir(exist_ok=True)
    return recipe(folder / name.partition(".")[0], dataset=str(folder / name), **SHORT)


def test_the_fine_tuning_starts_from_the_encoder_of_all_tasks(whole, monkeypatch):
    folder, results = whole
    saved = folder / "out" / "multitask"
    together = MultiTaskClassifier.from_pretrained(saved).encoder.state_dict()
    encoder = AutoModel.from_pretrained(saved / "encoder").state_dict()
    original = AutoModel.from_pretrained(folder / "model").state_dict()
    assert equal({name: encoder[name] for name in together}, together)
    assert not equal({name: original[name] for name in together}, together)
    pooler = [name for name in encoder if name.startswith("pooler")]
    assert len(pooler) == 2
    assert all(torch.equal(encoder[name], original[name]) for name in pooler)
    seen = []
    monkeypatch.setattr(stages, "prepare_fine_tuning", lambda run, args, source=None: seen.append(source) or stop())
    with pytest.raises(KeyboardInterrupt):
        run_recipe(tiny(folder, seed=3, output_dir=str(folder / "again")), ["--multitask_steps", "2"])
    assert seen == [None]  # what is wrong with the fine-tuning is said before anything is trained
    assert results["metrics"].keys() == {"validation", "test"}


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_killed_in_either_stage_it_goes_on_to_equal_bits(whole, tmp_path, monkeypatch):
    folder, straight = whole
    again = tiny(folder, output_dir=str(tmp_path / "out"))
    prepare = stages.prepare_multitask

    def and_stop(*args):
        stage = prepare(*args)
        stage.trainer.add_callback(StopAt(17))
        stage.evaluate = stop
        return stage

    monkeypatch.setattr(stages, "prepare_multitask", and_stop)
    with pytest.raises(KeyboardInterrupt):
        run_recipe(again, [])
    monkeypatch.undo()
    monkeypatch.setattr(stages, "_fine_tune_once", stop)
    with pytest.raises(KeyboardInterrupt):
        run_recipe(again, [])
    monkeypatch.undo()
    monkeypatch.setattr(stages, "prepare_multitask", stop)  # it is finished
    resumed = run_recipe(again, [])
    assert resumed["metrics"] == straight["metrics"]
    for part in ("multitask", "multitask/encoder", "."):
        assert equal(weights(tmp_path / "out" / part), weights(folder / "out" / part))


def weights(folder):
    if (folder / "results.json").exists() and "tasks" in json.loads((folder / "results.json").read_text()):
        return snapshot(MultiTaskClassifier.from_pretrained(folder))
    return snapshot(AutoModel.from_pretrained(folder))


def test_nothing_is_trained_on_that_another_task_is_evaluated_on(tmp_path):
    made = tiny(tmp_path)
    run, args, _, options = made.parse([])
    header, *lines = (tmp_path / "topics.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join([header, *lines[::-1]]) + "\n")  # all rows, other splits
    source = stages.find_pretrained(run.model)
    prepared = prepare_multitask(run, args, options, tmp_path / "checkpoints", source)
    first, second = (task.splits for task in prepared.tasks.values())
    assert len(first["train"]) < 63
    for one, other in ((first, second), (second, first)):
        texts = {tuple(ids) for split in ("validation", "test") for ids in other[split]["input_ids"]}
        assert texts.isdisjoint(map(tuple, one["train"]["input_ids"]))
    left_out = 63 - len(first["train"])
    assert any(
        f"{left_out} training rows that another task is evaluated on" in note for note in prepared.tasks["topics"].notes
    )


def test_the_code_of_the_card_runs_elsewhere(whole):
    folder, _ = whole
    saved = folder / "out" / "multitask"
    blocks = re.findall(r"```python\n(.*?)```", (saved / "README.md").read_text(), re.DOTALL)
    code = f"import sys\nsys.modules['hf_ftstrategies'] = None\n{blocks[0]}"
    for source in (code, "name = '.'\n" + blocks[1]):
        done = subprocess.run([sys.executable, "-c", source], cwd=saved, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(re.findall("fruit|metal|weather", done.stdout)) == 1


def test_two_processes_run_both_stages(whole, tmp_path):
    folder, _ = whole
    presets = {**tiny(folder).presets, "output_dir": str(tmp_path / "out"), "global_batch_size": 8}
    script = tmp_path / "tiny.py"
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe, main\nmain(Recipe('tiny', 'Tiny', {presets!r}))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Report:") == 1
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["hardware"]["processes"] == 2
    for name, task in results["multitask"]["tasks"].items():
        assert task["rows"] == whole[1]["multitask"]["tasks"][name]["rows"]
        assert task["metrics"]["test"]["accuracy"] > task["baseline"]["accuracy"]


@pytest.mark.parametrize("options", [(), ("--layers", "0")])
def test_a_model_with_several_heads_is_no_start_of_another_run(whole, tmp_path, capsys, options):
    with pytest.raises(SystemExit):
        main(recipe(tmp_path), ["--model", str(whole[0] / "out" / "multitask"), *options])
    assert "it is a multi-task model. Start from the folder 'encoder' in it" in capsys.readouterr().err


BAD = [
    (["--multitask", "trec"], "give two or more data sets"),
    (["--multitask", "a/x.csv,b/x.csv"], "makes only the tasks x"),
    (["--multitask_sampling", "sqare_root"], "Did you mean 'square_root'"),
    (["--multitask_epochs", "0"], "multitask_epochs is 0"),
    (["--multitask_learning_rate", "nan"], "multitask_learning_rate is nan"),
    (["--multitask", "imdbb,trec"], "Did you mean 'imdb'"),
    (["--streaming", "True", "--validation_rows", "9", "--test_rows", "9"], "leave out streaming"),
    (["--per_device_train_batch_size", "50"], "gets no block of 50"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(options) for options, _ in BAD])
def test_bad_options_are_one_line(tmp_path, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        main(tiny(tmp_path), options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_described_in_the_plan():
    options = MultiTaskArguments(multitask="trec, ag_news", multitask_steps=1000)
    assert options.tasks == {"trec": "trec", "ag_news": "ag_news"}
    assert options.describe() == (
        "multi-task fine-tuning first: 1,000 steps on trec, ag_news together (proportional sampling), peak rate 2e-05"
    )
