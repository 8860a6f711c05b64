"""Logits at masked positions only are those of the full computation, on every architecture and in every wrapping."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForMaskedLM, BertForPreTraining, PerceiverConfig

from hf_ftstrategies.modeling.masked_positions import predict_masked_only
from hf_ftstrategies.modeling.pretraining import pretraining_losses
from tests.modeling.architectures import MASKED_LANGUAGE_MODELS, TINY_CONFIGS, tiny_inputs, tiny_pretraining_model

POSITIONS = torch.tensor([[1, 4, 6], [7, 2, 0], [3, 9, 5], [5, 0, 0]])
WORDS = torch.tensor([[5, 99, 30], [40, 3, -100], [77, 8, 12], [51, -100, -100]])
PAIRS = torch.tensor([0, 1, 1, 0])


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


@pytest.mark.parametrize("name", MASKED_LANGUAGE_MODELS)
def test_values_and_gradients_are_those_of_the_full_computation(name):
    model = tiny_pretraining_model(name)
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
    model = tiny_pretraining_model(name)
    wanted = {**inputs(), "output_hidden_states": True, "return_dict": return_dict}
    full = model(**wanted)
    predict_masked_only(model)
    masked = model(**wanted, masked_positions=POSITIONS)
    assert type(masked) is type(full)
    others = [outputs[1:] if isinstance(outputs, tuple) else outputs.to_tuple()[1:] for outputs in (masked, full)]
    assert len(others[0][-1]) == 4  # hidden states
    torch.testing.assert_close(*others, atol=0, rtol=0)


def test_removed_hooks_leave_no_trace():
    model = tiny_pretraining_model("roberta")
    predict_masked_only(model).remove()
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called


def test_no_positions_are_left_after_an_error():
    model = tiny_pretraining_model("bert")
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
    model = tiny_pretraining_model("bert")
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
    model = tiny_pretraining_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    predict_masked_only(model)
    expected = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
    found = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_with_autocast():
    model = tiny_pretraining_model("bert", torch.float32)
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


@pytest.mark.usefixtures("gloo")
def test_wrapped_by_ddp():
    model = tiny_pretraining_model("bert")
    predict_masked_only(model)
    expected = gradients(model, losses_of(model, WORDS, masked_positions=POSITIONS))
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    outputs = wrapped(**inputs(), masked_positions=POSITIONS)
    losses = pretraining_losses(outputs, WORDS, PAIRS)
    found = gradients(model, losses.mlm_sum / losses.mlm_count + losses.nsp_sum / losses.nsp_count)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "positions", [POSITIONS.float(), POSITIONS.int(), POSITIONS[:2], POSITIONS[0], POSITIONS.unsqueeze(-1)]
)
def test_positions_of_the_wrong_kind(positions):
    model = tiny_pretraining_model("roberta")
    predict_masked_only(model)
    with pytest.raises(ValueError, match=r"masked_positions must be int64 of shape \(texts, positions\)"):
        model(**inputs(), masked_positions=positions)
    assert logits_of(model(**inputs())).shape == (4, 10, 100)


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="not BertModel"):
        predict_masked_only(AutoModel.from_config(TINY_CONFIGS["bert"]()))
    with pytest.raises(ValueError, match="before it is wrapped"):
        predict_masked_only(torch.nn.Sequential(tiny_pretraining_model("bert")))
    with pytest.raises(ValueError, match="sparse_prediction=False"):
        predict_masked_only(tiny_pretraining_model("modernbert", sparse_prediction=True))


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
    predict_masked_only(model)
    with pytest.raises(ValueError, match=words):
        model(**inputs(), masked_positions=POSITIONS)
    assert "_masked_positions" not in model.bert.__dict__
