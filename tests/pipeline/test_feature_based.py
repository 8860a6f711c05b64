"""BERT-Feat in recipes: the encoder runs once over each text and stays as it was; the saved model reads texts."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_ftstrategies import EncoderClassifier
from hf_ftstrategies.pipeline import fine_tuning
from hf_ftstrategies.pipeline.recipe import run_recipe
from tests.pipeline.tiny_run import recipe
from tests.tiny import KillAt, Killed, equal, snapshot

FEATURES = {
    "feature_based": True,
    "layer_decay": 1,
    "unfreezing": "none",
    "reinit_layers": 0,
    "num_train_epochs": 6,
    "learning_rate": 3e-3,
    "evaluations": 2,
}
CHUNKS = {"chunk_pooling": "attention", "max_length": 6, "truncation": "tail"}


@pytest.fixture
def stages(monkeypatch):
    """Every stage that is prepared."""
    prepared, prepare = [], fine_tuning.prepare_fine_tuning

    def and_keep(run, args, source):
        prepared.append(prepare(run, args, source))
        return prepared[-1]

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", and_keep)
    return prepared


@pytest.fixture
def rows_encoded(monkeypatch):
    """How many sequences the encoder read in each run of it."""
    counts, encode = [], EncoderClassifier.encode

    def and_count(self, input_ids=None, **kwargs):
        counts.append(len(input_ids))
        return encode(self, input_ids, **kwargs)

    monkeypatch.setattr(EncoderClassifier, "encode", and_count)
    return counts


@pytest.mark.parametrize(
    "options",
    [
        {},
        CHUNKS,
        {**CHUNKS, "head": "mlp", "layers": "0,2"},
        {"head": "linear"},
    ],
    ids=["bilstm", "chunks", "mlp_chunks", "linear"],
)
def test_the_saved_model_predicts_from_token_ids(tmp_path, stages, rows_encoded, options):
    results = run_recipe(recipe(tmp_path, **FEATURES, **options), [])
    (stage,) = stages
    sequences = sum(sum(rows["chunks"]) if "chunks" in rows.features else len(rows) for rows in stage.splits.values())
    assert sum(rows_encoded) == sequences  # once, in six epochs and four evaluations

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert model.config.head == options.get("head", "bilstm")
    before = snapshot(AutoModel.from_pretrained(tmp_path / "model", add_pooling_layer=False))
    assert equal(snapshot(model.encoder), {name: before[name] for name in model.encoder.state_dict()})

    test = stage.splits["test"]
    collator = fine_tuning.ChunkCollator if "chunks" in test.features else fine_tuning.DataCollatorWithPadding
    read = test.select_columns([name for name in ("input_ids", "token_type_ids", "labels") if name in test.features])
    with torch.no_grad():
        logits = model(**collator(tokenizer)([read[row] for row in range(len(read))])).logits.numpy()
    reported = stage.trainer.predict(stage.features["test"]).predictions
    np.testing.assert_allclose(logits, reported, atol=1e-5)
    accuracy = (logits.argmax(-1) == np.array(test["labels"])).mean()
    assert accuracy == pytest.approx(results["metrics"]["test"]["accuracy"])
    if model.config.head == "bilstm":  # the first token of an untrained encoder tells the others too little
        assert accuracy > 0.5


def test_grouped_by_length(tmp_path, stages):
    """By the column of lengths, since there are no token ids to measure."""
    run_recipe(recipe(tmp_path, **FEATURES, train_sampling_strategy="group_by_length", max_steps=2), [])
    assert [int(n) for n in stages[0].trainer._get_train_sampler().lengths] == stages[0].splits["train"]["length"][:]


def test_results_and_plan_say_so(tmp_path):
    results = run_recipe(recipe(tmp_path, **FEATURES), [])
    assert results["feature_based"]
    assert (
        "feature-based: the encoder stayed frozen, the head (bilstm) trained on its output"
        in results["dataset"]["notes"]
    )
    assert results["dataset"]["splits"] == {"train": 63, "validation": 9, "test": 18}
    assert results["dataset"]["truncated_share"] == {"train": 0, "validation": 0, "test": 0}
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert [row["name"] for row in plan["depths"] if row["trained_in"] == [True]] == ["head"]
    assert "the encoder stayed frozen" in (tmp_path / "out" / "report.html").read_text()


def test_a_plan_needs_no_features(tmp_path, rows_encoded):
    run, args, *_ = recipe(tmp_path, **FEATURES).parse([])
    stage = fine_tuning.prepare_fine_tuning(run, args)
    assert stage.trainer.plan().training["total_steps"] == 48
    assert rows_encoded == []


def test_resumed_to_equal_bits_from_the_cached_features(tmp_path, monkeypatch, rows_encoded):
    run, prepare = recipe(tmp_path, **FEATURES), fine_tuning.prepare_fine_tuning
    straight = run_recipe(run, ["--output_dir", str(tmp_path / "straight")])

    def and_kill(run, args, source):
        stage = prepare(run, args, source)
        stage.trainer.add_callback(KillAt(30))
        return stage

    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", and_kill)
    with pytest.raises(Killed):
        run_recipe(run, [])
    monkeypatch.setattr("hf_ftstrategies.pipeline.stages.prepare_fine_tuning", prepare)
    resumed = run_recipe(run, [])
    assert resumed["metrics"] == straight["metrics"]
    assert sum(rows_encoded) == 90
    models = [AutoModelForSequenceClassification.from_pretrained(tmp_path / name) for name in ("straight", "out")]
    assert equal(*map(snapshot, models))


REFUSED = [
    (["--layer_decay", "0.95"], r"layer_decay=0.95 would act: set layer_decay=1"),
    (["--unfreezing", "gradual", "--reinit_layers", "2"], r"unfreezing=gradual and reinit_layers=2 would act"),
    (["--reinit_pooler", "True"], r"reinit_pooler=True would act"),
    (["--streaming", "True"], "leave out streaming"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused_before_anything_is_loaded(tmp_path, monkeypatch, options, message):
    run = recipe(tmp_path, **FEATURES)
    monkeypatch.setattr(fine_tuning, "find_pretrained", None)
    with pytest.raises(ValueError, match=message):
        run_recipe(run, options)
