"""BERT-Feat: training on cached features is training with the encoder frozen and in evaluation mode."""

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding

from hf_ftstrategies import StrategyTrainer
from hf_ftstrategies.data.chunking import ChunkCollator, encode_chunks
from hf_ftstrategies.data.truncation import encode_batch
from hf_ftstrategies.modeling.features import collate_features, compute_features
from tests.data.tiny import bert
from tests.modeling.architectures import TINY_CONFIGS
from tests.modeling.test_classifier import classifier
from tests.tiny import arguments, snapshot

TEXTS = [" ".join(f"w{(3 * row + place) % 90}" for place in range(2 + 5 * row % 23)) for row in range(12)]
SETTINGS = [
    {"head": "bilstm", "layers": "all", "layer_pooling": "attention"},
    {"head": "bilstm", "chunk_pooling": "attention"},
    {"head": "mlp", "token_pooling": "concat", "layers": [0, 1], "chunk_pooling": "max"},
    {"token_pooling": "mean"},
]


def tokenised(settings):
    """Rows and their collator, of chunks where the model takes them."""
    tokenizer = bert()
    if "chunk_pooling" in settings:
        columns, collator = encode_chunks(tokenizer, TEXTS, max_length=10), ChunkCollator(tokenizer)
    else:
        columns, collator = encode_batch(tokenizer, TEXTS, max_length=16, head=4), DataCollatorWithPadding(tokenizer)
    return Dataset.from_dict({**columns, "labels": [row % 3 for row in range(12)]}), collator


def vocabulary_of_104(settings, seed=0):
    config = TINY_CONFIGS["bert"]()
    config.vocab_size = 104
    return classifier(seed=seed, text_config=config, **settings)


class FrozenEncoder(StrategyTrainer):
    """The slow way: the encoder runs in every step, without dropout."""

    def training_step(self, model, *args, **kwargs):
        model.train()
        model.encoder.eval()
        model.train = lambda mode=True: model  # the Trainer switches the whole model to training
        try:
            return super().training_step(model, *args, **kwargs)
        finally:
            del model.train


def train(trainer, folder, settings, dataset, collator):
    model = vocabulary_of_104(settings)
    model.encoder.requires_grad_(False)
    run = trainer(
        model,
        arguments(folder, num_train_epochs=2, weight_decay=0.1, learning_rate=0.1, optim="sgd"),
        train_dataset=dataset,
        data_collator=collator,
    )
    run.train()
    return run


@pytest.mark.parametrize("settings", SETTINGS)
def test_training_on_features_is_training_with_a_frozen_encoder(tmp_path, settings):
    rows, collator = tokenised(settings)
    features = compute_features(vocabulary_of_104(settings), rows, collator, batch_size=5)
    slow = train(FrozenEncoder, tmp_path / "slow", settings, rows, collator)
    fast = train(StrategyTrainer, tmp_path / "fast", settings, features, collate_features)

    losses = [[log["loss"] for log in run.state.log_history if "loss" in log] for run in (slow, fast)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    start = snapshot(vocabulary_of_104(settings))
    for name, weight in snapshot(fast.model).items():
        assert torch.allclose(weight, slow.model.state_dict()[name], atol=1e-6)
        assert torch.equal(weight, start[name]) == name.startswith("encoder.")
    assert torch.allclose(
        torch.tensor(slow.predict(rows).predictions), torch.tensor(fast.predict(features).predictions), atol=1e-6
    )


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_from_features_equal_those_from_texts(settings, side):
    (rows, collator), model = tokenised(settings), vocabulary_of_104(settings)
    collator.tokenizer.padding_side = side
    # BERT padded on the left counts its positions from the padding, so batches must be the same there
    features = compute_features(model, rows, collator, batch_size=5 if side == "right" else 12)
    read = rows.select_columns([name for name in ("input_ids", "token_type_ids", "labels") if name in rows.features])
    with torch.no_grad():
        from_texts = model(**collator([read[index] for index in range(12)]))
        from_features = model(**collate_features([features[index] for index in range(12)]))
    assert torch.allclose(from_texts.logits, from_features.logits, atol=1e-6)
    assert torch.allclose(from_texts.loss, from_features.loss, atol=1e-6)


def test_half_precision():
    (rows, collator), model = tokenised(SETTINGS[1]), vocabulary_of_104(SETTINGS[1]).bfloat16()
    features = compute_features(model, rows, collator, batch_size=12)
    texts = rows.select_columns(["input_ids", "token_type_ids"])
    from_texts = model(**collator([texts[index] for index in range(12)])).logits
    from_features = model(**collate_features([features[index] for index in range(12)])).logits
    assert from_features.dtype == torch.bfloat16
    assert torch.equal(from_texts, from_features)


def test_columns_and_shapes():
    rows, collator = tokenised(SETTINGS[2])
    model = vocabulary_of_104(SETTINGS[2]).train()
    features = compute_features(model, rows, collator)
    assert model.training
    assert set(features.column_names) == {"chunks", "length", "truncated", "labels", "features", "attention_mask"}
    chunks = rows["chunks"][:]
    assert [tuple(row["features"].shape) for row in features] == [(count, 2, 96) for count in chunks]
    rows, collator = tokenised(SETTINGS[0])
    features = compute_features(vocabulary_of_104(SETTINGS[0]), rows, collator)
    assert [tuple(row["features"].shape) for row in features] == [(length, 3, 32) for length in rows["length"]]


@pytest.mark.parametrize("in_memory", [True, False])
def test_computed_once(tmp_path, monkeypatch, in_memory):
    """The same rows, encoder and settings are read again, whatever the seed of the head."""
    rows, collator = tokenised(SETTINGS[3])
    if not in_memory:
        rows.save_to_disk(tmp_path / "rows")
        rows = Dataset.load_from_disk(str(tmp_path / "rows"))
    first, again, other = vocabulary_of_104(SETTINGS[3]), vocabulary_of_104(SETTINGS[3]), vocabulary_of_104({}, seed=1)
    torch.nn.init.normal_(again.classifier.weight)
    expected = compute_features(first, rows, collator)["features"][:]

    def fail(*args, **kwargs):
        raise AssertionError("computed again")

    monkeypatch.setattr(again, "encode", fail)
    found = compute_features(again, rows, collator)["features"][:]
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    other = compute_features(other, rows, collator)["features"][:]
    assert not any(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


def test_token_ids_are_needed():
    with pytest.raises(ValueError, match="no input_ids, only text: tokenise it first"):
        compute_features(classifier(), Dataset.from_dict({"text": ["a"]}), None)
