import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    BertForPreTraining,
    DistilBertForMaskedLM,
    TrainerCallback,
)

from hf_ftstrategies.pipeline.fine_tuning import load_splits, prepare_fine_tuning
from hf_ftstrategies.pipeline.further_pretraining import prepare_further_pretraining
from hf_ftstrategies.pipeline.output import OutputFolder
from hf_ftstrategies.pipeline.pretraining_arguments import PretrainingArguments
from hf_ftstrategies.pipeline.pretraining_trainer import PretrainingTrainer
from hf_ftstrategies.pipeline.recipe import run_recipe
from tests.pipeline import tiny_pretraining
from tests.pipeline.tiny_pretraining import distilbert, prepare, recipe
from tests.tiny import StopAt, equal, snapshot

ROOT = Path(__file__).parents[2]


def prepared(folder, **presets):
    """The stage, with nothing trained."""
    run, args, options, _ = recipe(folder, **presets).parse([])
    return prepare_further_pretraining(run, args, options, OutputFolder(folder / "stage", {}))


def weights(folder):
    return load_file(Path(folder) / "model.safetensors")


def test_both_stages_leave_everything(tmp_path, capsys):
    results = run_recipe(recipe(prepare(tmp_path)), [])
    out = tmp_path / "out"
    facts = results["further_pretraining"]
    assert results == json.loads((out / "results.json").read_text())
    assert facts == json.loads((out / "pretraining" / "results.json").read_text())
    assert (facts["steps"], facts["models"]) == (10, {"10": "step-10"})
    assert facts["corpus"] == [
        {"name": str(tmp_path / "texts.csv"), "splits": ["train"], "documents": 48, "left_out": 12}
    ]
    assert facts["after"]["eval_perplexity"] == pytest.approx(math.exp(facts["after"]["eval_mlm_loss"]))
    assert "no MLM head (decoder tied to the embeddings), no next-sentence head: drawn anew" in facts["notes"][2]
    assert (out / "pictures" / "further_pretraining.png").exists()
    plan = json.loads((out / "plan.json").read_text())
    assert plan["further_pretraining"].startswith("further pre-training first: 10 steps of 8 examples of 32 tokens")
    assert not (out / "pretraining" / "checkpoints").exists()
    page, card = (out / "report.html").read_text(), (out / "README.md").read_text()
    assert "Further pre-training" in page
    assert "12 texts that also stand in the test split were left out" in page
    assert "## Further pre-training" in card
    assert str(tmp_path) not in card
    BertForPreTraining.from_pretrained(out / "pretraining" / "step-10")


def test_no_text_of_the_test_split_is_read_unless_asked_for(tmp_path):
    run, *_ = recipe(prepare(tmp_path)).parse([])
    test = set(load_splits(run)[0]["test"]["text"])
    stage = prepared(tmp_path)
    assert (stage.examples.parts[0].documents, stage.examples.parts[0].left_out) == (60 - len(test), len(test))
    # a test text of a dozen words or more: no example has two of its sentences side by side
    tokenizer = stage.trainer.processing_class
    examples = [
        tokenizer.decode(row["input_ids"])
        for row in prepared(tmp_path, masking="dynamic").trainer.train_dataset.examples
    ]
    for text in test:
        assert not any(" ".join(text.split("<br />")[:2]) in example for example in examples)

    stage = prepared(tmp_path, transductive=True)
    assert (stage.examples.parts[0].documents, stage.examples.parts[0].left_out) == (60, 0)
    assert any("transductive" in note for note in stage.notes())


def test_the_loss_is_the_models_own_and_the_gradient_too(tmp_path):
    """One batch through the trainer and through the stock model with labels at every token."""
    stage = prepared(prepare(tmp_path, heads=True), pretraining_batch_size=4)
    trainer, model = stage.trainer, stage.trainer.model.eval()
    batch = trainer.data_collator([stage.trainer.train_dataset[i] for i in range(4)])
    full = dict(batch)
    positions, labels = full.pop("masked_positions"), full.pop("labels")
    full["labels"] = torch.full_like(batch["input_ids"], -100).scatter(1, positions, labels)
    # padding of the positions points at the first token: it must not count
    full["labels"][:, 0] = -100
    expected = model(**full)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss = trainer.compute_loss(model, batch)
    torch.testing.assert_close(loss, expected.loss)
    wanted = torch.autograd.grad(expected.loss, list(model.parameters()))
    for got, gradient in zip(torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(got, gradient, atol=1e-6, rtol=1e-4)


def test_accumulation_gives_the_whole_batch(tmp_path):
    prepare(tmp_path, heads=True)
    losses = []
    for per_device in (8, 2):
        stage = prepared(
            tmp_path, pretraining_device_batch_size=per_device, pretraining_steps=3, pretraining_save_steps=3
        )
        stage.trainer.model.config.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
        for module in stage.trainer.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        stage.trainer.train()
        history = stage.trainer.state.log_history
        losses.append([(h["loss"], h["mlm_loss"], h["nsp_loss"], h["grad_norm"]) for h in history if "loss" in h])
        (tmp_path / "stage").rename(tmp_path / f"stage-{per_device}")
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=1e-5)
    for total, mlm, nsp, _ in losses[0]:
        assert total == pytest.approx(mlm + nsp, rel=1e-5)


def test_an_encoder_without_next_sentences(tmp_path):
    distilbert(prepare(tmp_path))
    stage = prepared(tmp_path)
    assert isinstance(stage.trainer.model, DistilBertForMaskedLM)
    stage.train()
    after = stage.facts()["after"]
    assert after.keys() >= {"eval_mlm_loss", "eval_mlm_accuracy", "eval_perplexity"}
    assert "eval_nsp_loss" not in after
    with pytest.raises(ValueError, match="no next-sentence head"):
        prepared(tmp_path, next_sentence=True)


def test_half_precision_checkpoints_are_trained_in_float32(tmp_path):
    prepare(tmp_path)
    BertForPreTraining.from_pretrained(tmp_path / "model").half().save_pretrained(tmp_path / "model")
    assert next(BertForPreTraining.from_pretrained(tmp_path / "model").parameters()).dtype == torch.float16
    run, args, *_ = recipe(tmp_path).parse([])
    for trainer in (prepared(tmp_path).trainer, prepare_fine_tuning(run, args).trainer):
        assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}


def test_next_sentence_can_be_left_out_of_a_bert(tmp_path):
    stage = prepared(prepare(tmp_path, heads=True), next_sentence=False, pretraining_steps=2)
    before = {n: p.clone() for n, p in stage.trainer.model.named_parameters() if "seq_relationship" in n}
    stage.train()
    after = dict(stage.trainer.model.named_parameters())
    assert all(torch.equal(old, after[name]) for name, old in before.items())
    assert "eval_mlm_loss" in stage.facts()["after"]
    assert "eval_nsp_loss" not in stage.facts()["after"]


def test_dynamic_masks_know_their_epoch_also_after_a_resume(tmp_path):
    prepare(tmp_path)

    class Epochs(TrainerCallback):
        def on_step_end(self, args, state, control, train_dataloader=None, **kwargs):
            assert int(state.epoch - 1e-6) == int(train_dataloader.dataset._epoch)

    def train(*callbacks):
        stage = prepared(tmp_path, masking="dynamic", pretraining_steps=30, pretraining_save_steps=17)
        for callback in (Epochs(), *callbacks):
            stage.trainer.add_callback(callback)
        stage.train()
        return stage.trainer

    whole = train()
    assert whole.state.epoch > 1
    (tmp_path / "stage").rename(tmp_path / "whole")
    train(StopAt(17))
    resumed = train()
    assert equal(snapshot(whole.model), snapshot(resumed.model))


def test_a_stream_reads_what_is_read_beforehand_and_resumes_to_equal_bits(tmp_path):
    prepare(tmp_path)
    options = {"corpus_streaming": True, "held_out_documents": 4, "pretraining_save_steps": 7}
    beforehand = prepared(tmp_path)

    def train(*callbacks):
        stage = prepared(tmp_path, **options, pretraining_steps=30)
        for callback in callbacks:
            stage.trainer.add_callback(callback)
        stage.train()
        return stage

    whole = train()
    assert [part.to_dict() for part in whole.examples.parts] == [p.to_dict() for p in beforehand.examples.parts]
    assert len(whole.examples.train) == 30 * 8
    passes = [h["epoch"] for h in whole.trainer.state.log_history]
    assert passes[-1] == 1  # to the Trainer, however often the texts were read
    (tmp_path / "stage").rename(tmp_path / "whole")
    train(StopAt(21))
    resumed = train()
    assert equal(snapshot(whole.trainer.model), snapshot(resumed.trainer.model))


def test_a_stream_too_short_for_what_is_held_out(tmp_path):
    with pytest.raises(ValueError, match="has 48 documents, and held_out_documents is 500: hold out fewer"):
        prepared(prepare(tmp_path), corpus_streaming=True)


def test_starting_points(tmp_path, capsys):
    """Fine-tuning from several steps; the best on validation is the result."""
    results = run_recipe(recipe(prepare(tmp_path)), ["--fine_tune_at", "4,7"])
    out = tmp_path / "out"
    facts = results["further_pretraining"]
    assert [point["step"] for point in facts["curve"]] == [4, 7, 10]
    assert facts["models"] == {"4": "step-4", "7": "step-7", "10": "step-10"}
    best = max(point["metrics"]["validation"]["accuracy"] for point in facts["curve"])
    assert results["metrics"]["validation"]["accuracy"] == best
    kept = out / "fine_tuning" / f"step-{facts['fine_tuned_from']}"
    assert equal(weights(out), weights(kept))
    assert (out / "pictures" / "starting_points.png").exists()
    assert len({json.dumps(p["metrics"]) for p in facts["curve"]}) > 1
    AutoModelForSequenceClassification.from_pretrained(out)


def test_of_losses_the_least_chooses_the_starting_point(tmp_path, capsys):
    results = run_recipe(recipe(prepare(tmp_path)), ["--fine_tune_at", "4,7", "--metric_for_best_model", "eval_loss"])
    losses = {
        point["step"]: point["metrics"]["validation"]["loss"] for point in results["further_pretraining"]["curve"]
    }
    assert len(set(losses.values())) == 3
    assert results["further_pretraining"]["fine_tuned_from"] == min(losses, key=losses.get)


def test_what_a_dependency_says_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hf_ftstrategies.pipeline.further_pretraining.find_texts", lambda *_: [].pop())
    with pytest.raises(ValueError, match="IndexError: pop from empty list"):
        run_recipe(recipe(prepare(tmp_path)), [])


def test_a_finished_stage_is_not_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hf_ftstrategies.pipeline.stages._fine_tune", stop)
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe(prepare(tmp_path)), [])
    before = (tmp_path / "out" / "pretraining" / "step-10" / "model.safetensors").stat().st_mtime_ns
    monkeypatch.undo()
    monkeypatch.setattr(PretrainingTrainer, "train", stop)
    results = run_recipe(recipe(tmp_path), [])
    assert results["metrics"].keys() == {"validation", "test"}
    assert (tmp_path / "out" / "pretraining" / "step-10" / "model.safetensors").stat().st_mtime_ns == before


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_what_is_wrong_with_the_fine_tuning_is_said_before_the_pretraining(tmp_path, monkeypatch):
    monkeypatch.setattr(PretrainingTrainer, "train", stop)
    with pytest.raises(ValueError, match="reinit_layers is 9, but the model has 3 blocks"):
        run_recipe(recipe(prepare(tmp_path)), ["--reinit_layers", "9"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fine_tune_at": "10k"}, r"fine_tune_at holds 10000, outside the 100 pre"),
        ({"fine_tune_at": "soon"}, "fine_tune_at is 'soon': give steps such as 10k"),
        ({"masking": "often"}, "masking is 'often', known are static and dynamic"),
        ({"duplication_factor": 0}, "duplication_factor is 0: give a number above 0"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        PretrainingArguments("within_task", pretraining_steps=100, **options)


def test_starting_points_are_read_as_people_write_them():
    options = PretrainingArguments("within_task", fine_tune_at="10k, 2.5K,500")
    assert options.starting_points == (500, 2_500, 10_000, 100_000)
    assert PretrainingArguments().starting_points == (100_000,)
    assert not PretrainingArguments().is_on


def test_unlabelled_needs_such_a_split(tmp_path):
    with pytest.raises(ValueError, match="no unlabelled split besides test"):
        prepared(prepare(tmp_path), unlabelled=True)


def command(folder, *launch, options=()):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, *launch, tiny_pretraining.__file__, str(folder), *options]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    printed, _ = process.communicate(timeout=200)
    assert process.returncode == 0, printed[-4000:]


def test_killed_and_started_again_it_ends_with_the_same_bits(tmp_path):
    """Killed once while a checkpoint is written and once while a model is kept."""
    straight, killed = (prepare(tmp_path / name) for name in made(tmp_path, "straight", "killed"))
    run_recipe(recipe(straight), [])
    for sign in ("checkpoints/checkpoint-4/optimizer.pt", "step-10.part"):
        process = command(killed)
        deadline = time.monotonic() + 200
        while not (killed / "out" / "pretraining" / sign).exists():
            assert process.poll() is None, process.stdout.read()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finish(command(killed))
    for part in ("pretraining/step-10", "."):
        assert equal(weights(straight / "out" / part), weights(killed / "out" / part))


def made(folder, *names):
    for name in names:
        (folder / name).mkdir()
        yield folder / name


@pytest.mark.parametrize("options", [[], ["--corpus_streaming", "True", "--held_out_documents", "4"]])
def test_two_processes_give_the_models_of_one(tmp_path, options):
    """The same global batches, masks and pairs; sums in another order."""
    one, two = (prepare(tmp_path / name, heads=True) for name in made(tmp_path, "one", "two"))
    for folder in (one, two):
        config = json.loads((folder / "model" / "config.json").read_text())
        config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (folder / "model" / "config.json").write_text(json.dumps(config))
    alone = run_recipe(recipe(one), options)["further_pretraining"]
    finish(command(two, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", options=options))
    shared = json.loads((two / "out" / "results.json").read_text())["further_pretraining"]
    steps = [[h for h in facts["history"] if "loss" in h] for facts in (alone, shared)]
    for a, b in zip(*steps, strict=True):
        assert (a["mlm_loss"], a["nsp_loss"], a["grad_norm"]) == pytest.approx(
            (b["mlm_loss"], b["nsp_loss"], b["grad_norm"]), rel=1e-4
        )
    for name, weight in weights(one / "out" / "pretraining" / "step-10").items():
        torch.testing.assert_close(weights(two / "out" / "pretraining" / "step-10")[name], weight, atol=1e-5, rtol=1e-4)
