import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from hf_ftstrategies import EncoderClassifier
from hf_ftstrategies.data.truncation import encode_batch
from hf_ftstrategies.pipeline import fine_tuning
from hf_ftstrategies.pipeline.recipe import Recipe, main, run_recipe
from tests.pipeline.tiny_run import TOPICS, recipe
from tests.tiny import KillAt, Killed, equal, snapshot

FILES = ["README.md", "config.json", "manifest.json", "model.safetensors", "plan.json", "report.html", "results.json"]


def load(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder)


def test_a_recipe_leaves_everything(tmp_path, capsys):
    results = run_recipe(recipe(tmp_path, log_layer_distance=True), [])
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} >= {*FILES, "tokenizer.json", "pictures"}
    assert len(list((out / "pictures").glob("*.png"))) == 5
    assert results == json.loads((out / "results.json").read_text())
    assert results["metrics"]["test"]["accuracy"] > results["baseline"]["accuracy"] + 0.2
    assert results["baseline"]["accuracy"] == pytest.approx(1 / 3, abs=0.06)
    assert results["dataset"]["splits"] == {"train": 63, "validation": 9, "test": 18}
    assert sum(map(sum, results["confusion_matrix"])) == 18
    assert "accuracy" in capsys.readouterr().out


def test_the_saved_model_gives_the_reported_accuracy(tmp_path):
    """Counted again by hand: stock model class, its tokenizer, the test rows, no package in between."""
    results = run_recipe(recipe(tmp_path), [])
    run, args, *_ = recipe_of(tmp_path).parse([])
    test = fine_tuning.prepare_fine_tuning(run, args).splits["test"]
    model, tokenizer = load(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in test["input_ids"]]
    batch = encode_batch(tokenizer, texts, max_length=16, head=4)
    logits = model(torch.tensor(batch["input_ids"])).logits
    accuracy = (logits.argmax(-1) == torch.tensor(test["labels"])).float().mean().item()
    assert accuracy == pytest.approx(results["metrics"]["test"]["accuracy"])
    assert model.config.id2label == dict(enumerate(TOPICS))


@pytest.mark.parametrize(("metric", "weights"), [(None, "ensemble"), ("accuracy", "student")])
def test_results_and_card_say_whether_the_average_was_kept(tmp_path, metric, weights):
    given = {} if metric is None else {"metric_for_best_model": metric}
    results = run_recipe(recipe(tmp_path, self_ensemble="se", self_distillation="sda", teacher_size=2, **given), [])
    prefix = "ensemble_" if weights == "ensemble" else ""
    assert results["selected"]["weights"] == weights
    assert results["selected"]["metric"] == f"{prefix}accuracy"
    values = [log[f"eval_{prefix}accuracy"] for log in results["history"] if f"eval_{prefix}accuracy" in log]
    assert results["metrics"]["validation"]["accuracy"] == results["selected"]["value"] == max(values)
    for name in ("README.md", "report.html"):
        kept = f"{'averaged ' if prefix else ''}weights of step {results['selected']['step']} were kept"
        assert f"The {kept}" in (tmp_path / "out" / name).read_text()


def recipe_of(tmp_path):
    return Recipe("tiny", "Tiny topics", {**recipe(tmp_path).presets, "output_dir": str(tmp_path / "other")})


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_pooling": "attention", "max_length": 6, "truncation": "tail"},
        {"chunk_pooling": "mean", "max_length": 6, "max_chunks": 2, "chunk_stride": 1, "truncation": "tail"},
        {"layers": "0,2", "layer_pooling": "mean", "token_pooling": "mean"},
        {"layers": "1", "head": "mlp"},
        {"head": "bilstm"},
    ],
)
def test_layers_heads_and_chunks(tmp_path, options):
    short = {"max_steps": 6, "evaluations": 2, "unfreezing": "none"}
    results = run_recipe(recipe(tmp_path, **short, **options), [])
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["model"]["class"] == "EncoderClassifier"
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert isinstance(loaded, EncoderClassifier)
    assert "import EncoderClassifier" in (tmp_path / "out" / "README.md").read_text()
    cut = options.get("max_chunks") == 2  # 2 chunks of 4 with one token twice hold 7 of 10 tokens
    assert results["dataset"]["truncated_share"]["train"] == float(cut)


@pytest.mark.parametrize("step", [3, 9, 20, 31])
def test_the_same_command_resumes_to_equal_bits(tmp_path, monkeypatch, step):
    straight = run_recipe(recipe(tmp_path, output_dir=str(tmp_path / "straight")), [])
    killed = recipe(tmp_path)
    prepare = fine_tuning.prepare_fine_tuning

    def and_kill(run, args, source):
        stage = prepare(run, args, source)
        stage.trainer.add_callback(KillAt(step))
        return stage

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", and_kill)
    with pytest.raises(Killed):
        run_recipe(killed, [])
    monkeypatch.undo()
    resumed = run_recipe(killed, [])
    assert resumed["metrics"] == straight["metrics"]
    assert equal(snapshot(load(tmp_path / "straight")), snapshot(load(tmp_path / "out")))


@pytest.mark.parametrize("ensemble", ["none", "se"])
def test_killed_after_an_early_stop_the_best_is_kept(tmp_path, monkeypatch, ensemble):
    settings = {"early_stopping_patience": 1, "learning_rate": 1e-9, "self_ensemble": ensemble}  # nothing improves
    straight = run_recipe(recipe(tmp_path, output_dir=str(tmp_path / "straight"), **settings), [])
    assert straight["history"][-1]["step"] < 32
    monkeypatch.setattr(fine_tuning.FineTuning, "evaluate", lambda self: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        run_recipe(recipe(tmp_path, **settings), [])
    monkeypatch.undo()
    resumed = run_recipe(recipe(tmp_path, **settings), [])
    assert resumed["metrics"] == straight["metrics"]
    assert resumed["selected"] == straight["selected"]
    assert equal(snapshot(load(tmp_path / "straight")), snapshot(load(tmp_path / "out")))


def test_two_processes_run_a_recipe_and_write_once(tmp_path):
    recipe(tmp_path)
    script = tmp_path / "tiny.py"
    presets = {**recipe(tmp_path).presets, "max_steps": 4, "evaluations": 1, "unfreezing": "none"}
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe, main\nmain(Recipe('tiny', 'Tiny', {presets!r}))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    for _ in range(2):  # the second time it is finished, in both processes
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.count("Report:") == 1
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["hardware"]["processes"] == 2
    assert sum(map(sum, results["confusion_matrix"])) == results["dataset"]["splits"]["test"]


def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch, capsys):
    first = run_recipe(recipe(tmp_path, max_steps=4, evaluations=1, unfreezing="none"), [])
    monkeypatch.setattr(fine_tuning, "prepare_fine_tuning", None)
    again = run_recipe(recipe(tmp_path, max_steps=4, evaluations=1, unfreezing="none"), [])
    assert again == first
    assert "nothing to do" in capsys.readouterr().out


def test_another_setting_in_the_same_folder_is_refused(tmp_path):
    run_recipe(recipe(tmp_path, max_steps=4, evaluations=1, unfreezing="none"), [])
    with pytest.raises(ValueError, match=r"layer_decay: 0\.9 there, 0\.8 now"):
        run_recipe(recipe(tmp_path, max_steps=4, evaluations=1, unfreezing="none"), ["--layer_decay", "0.8"])


def test_options_go_over_presets(tmp_path):
    run, args, *_ = recipe(tmp_path).parse(["--layer_decay", "0.5", "--lr_schedule", "none", "--train_rows", "7"])
    assert (args.layer_decay, args.lr_schedule, run.train_rows, args.unfreezing) == (0.5, None, 7, "ulmfit")


def test_a_refused_deepspeed_does_not_stay_behind(tmp_path):
    """Transformers keeps the configuration it could not finish, as long as the error lives."""
    with pytest.raises(ValueError, match="deepspeed") as refused:
        recipe(tmp_path).parse(["--deepspeed", "zero.json"])
    assert not is_deepspeed_zero3_enabled(), refused


def test_settings_are_what_differs_from_the_defaults(tmp_path):
    settings = recipe(tmp_path).settings(["--layer_decay", "1.0", "--reinit_layers", "0", "--seed", "42"])
    assert "layer_decay" not in settings
    assert "reinit_layers" not in settings
    assert "seed" not in settings
    assert "output_dir" not in settings
    assert (settings["recipe"], settings["max_length"]) == ("tiny", 16)


def test_presets_must_be_options():
    with pytest.raises(ValueError, match="Did you mean 'layer_decay'"):
        Recipe("r", "t", {"layer_deca": 1})


BAD = [
    (["--layer_decy", "0.9"], "Did you mean '--layer_decay'"),
    (["--layer_decay", "1.5"], "layer_decay is 1.5"),
    (["--unfreezing", "gradul"], "Did you mean 'gradual'"),
    (["--reinit_layers", "9"], "has 3 blocks"),
    (["--unfreezing", "gradual", "--unfreeze_every", "20"], "the training ends at step 32"),
    (["--dataset", "imdbb"], "Did you mean 'imdb'"),
    (["--dataset", "none.csv"], "none.csv"),
    (["--text_column", "txt"], "text"),
    (["--train_rows", "1000"], "more than the 90"),
    (["--train_rows", "0"], "train_rows is 0"),
    (["--model", "./nowhere"], "does not exist"),
    (["--max_length", "3000"], "3000"),
    (["--truncation", "middle"], "middle"),
    (["--truncation_head", "99"], "99"),
    (["--evaluations", "0"], "evaluations is 0"),
    (["--lr_schedule", "cosine"], "lr_scheduler_type"),
    (["--metric_for_best_model", "acuracy"], "Did you mean 'accuracy'"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(options) for options, _ in BAD])
def test_bad_input_is_one_error_line_and_status_2(tmp_path, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        main(recipe(tmp_path), options)
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert "error:" in printed
    assert message in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "out" / "results.json").exists()


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(ValueError, match=r"layer_decay is 1\.5"):
        main(recipe(tmp_path), ["--layer_decay", "1.5", "--debug"])


def test_a_failed_start_leaves_the_folder_usable(tmp_path):
    with pytest.raises(SystemExit):
        main(recipe(tmp_path), ["--dataset", "none.csv"])
    run_recipe(recipe(tmp_path, max_steps=4, evaluations=1, unfreezing="none"), [])


@pytest.mark.parametrize(
    "content", ["text,label\n", "text,label\nw1 w2,a\nw3,a\nw4,a\n", "text,label\nw1,a\n,b\nw3,a\n"]
)
def test_bad_data_is_refused(tmp_path, capsys, content):
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(SystemExit):
        main(recipe(tmp_path), ["--dataset", str(tmp_path / "bad.csv")])
    assert "error:" in capsys.readouterr().err
