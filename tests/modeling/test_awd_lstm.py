"""AWD-LSTM and ULMFiT's classifier: as written down in numpy and plain torch."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
)

from hf_ftstrategies import (
    AwdLstmConfig,
    AwdLstmForCausalLM,
    AwdLstmForSequenceClassification,
    LayerMap,
)
from hf_ftstrategies.modeling.awd_lstm import AwdLstmModel
from tests.modeling.awd_lstm import NO_DROPOUT, batch, texts, tiny
from tests.modeling.test_awd_lstm_layers import lstm, weights_of
from tests.tiny import LABELS, VOCAB, equal, snapshot


def read(encoder, text, states=None):
    """A text in numpy: states of the last layer, and h and c of all."""
    x, after = encoder.embed_tokens.weight.detach().numpy()[text.numpy()], []
    for index, layer in enumerate(encoder.layers):
        x, state = lstm(weights_of(layer), x, states and states[index])
        after.append(state)
    return x, after


def assert_close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(torch.as_tensor(a).detach().numpy(), b, atol=tolerance, rtol=tolerance)


# --- The encoder ---


@pytest.mark.parametrize("side", ["right", "left", "scattered"])
def test_states_are_those_of_the_equations_whatever_the_padding(side):
    model, given = tiny(AwdLstmModel), batch(side)
    outputs = model(**given)
    for row, text in enumerate(texts()):
        expected, states = read(model, text)
        assert_close(outputs.last_hidden_state[row][given["attention_mask"][row].bool()], expected)
        for (h, c), last in zip(outputs.states, states):
            assert_close(h[row], last[0])
            assert_close(c[row], last[1])


def test_embeddings_instead_of_words():
    model, given = tiny(AwdLstmModel), batch("left")
    embedded = model(inputs_embeds=model.embed_tokens(given["input_ids"]), attention_mask=given["attention_mask"])
    assert torch.equal(embedded.last_hidden_state, model(**given).last_hidden_state)
    assert model(given["input_ids"], return_dict=False)[0].shape == (4, 13, 6)


def test_two_halves_are_the_whole():
    model, given = tiny(AwdLstmModel), batch("left")
    whole, states, halves = model(**given), None, []
    for part in (slice(0, 6), slice(6, None)):
        outputs = model(**{name: tensor[:, part] for name, tensor in given.items()}, states=states)
        states = outputs.states
        halves.append(outputs.last_hidden_state)
    real = given["attention_mask"].bool()
    assert_close(torch.cat(halves, 1)[real], whole.last_hidden_state[real].detach())
    for (h, c), (h_whole, c_whole) in zip(states, whole.states):
        assert_close(h, h_whole.detach())
        assert_close(c, c_whole.detach())


@pytest.mark.parametrize("name", ["hidden", "input", "embedding", "weight"])
def test_each_dropout_acts_in_training(name):
    model = tiny(AwdLstmModel, **{**NO_DROPOUT, f"{name}_dropout": 0.5})
    ids = texts()[0].unsqueeze(0)
    before = model(ids).last_hidden_state
    assert torch.equal(model(ids).last_hidden_state, before)
    assert not torch.equal(model.train()(ids).last_hidden_state, before)
    model = tiny(AwdLstmModel, **NO_DROPOUT)
    assert torch.equal(model.train()(ids).last_hidden_state, before)


def test_where_the_dropouts_are():
    model, calls = tiny(AwdLstmForCausalLM), []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: calls.append(name.removeprefix("encoder.")))
    model(texts()[0].unsqueeze(0))
    below = ["embed_tokens", "embedding_dropout", "input_dropout", "layers.0", "hidden_dropout", "layers.1"]
    assert calls == [*below, "hidden_dropout", "layers.2", "encoder", "output_dropout", "lm_head", ""]


def test_initial_weights():
    """Merity et al. 2018, section 5."""
    torch.manual_seed(0)
    model = AwdLstmForCausalLM(AwdLstmConfig(vocab_size=400, embedding_size=100, hidden_size=64))
    bounds = {"encoder.embed_tokens": 0.1, "encoder.layers.0": 1 / 8, "encoder.layers.1": 1 / 8}
    for prefix, bound in {**bounds, "encoder.layers.2": 0.1}.items():
        for parameter in model.get_submodule(prefix).parameters():
            assert parameter.abs().max().item() == pytest.approx(bound, rel=0.05)
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert not model.lm_head.bias.any()


# --- The language model ---


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_loss_of_training_and_that_of_evaluation(side):
    """Cross entropy of the next token; in training AR of dropped states, and TAR of raw ones."""
    model = tiny(AwdLstmForCausalLM, **{**NO_DROPOUT, "output_dropout": 0.5}, ar_alpha=1.5, tar_beta=0.7)
    given, seen = batch(side), {}
    model.encoder.register_forward_hook(lambda *args: seen.update(raw=args[-1].last_hidden_state))
    model.output_dropout.register_forward_hook(lambda *args: seen.update(dropped=args[-1]))
    labels = given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)
    for training in (True, False):
        outputs = model.train(training)(**given, labels=labels)
        nll, squares, changes = [], [], []
        for row, text in enumerate(texts()):
            of_row = given["attention_mask"][row].bool()
            scores = outputs.logits[row, of_row].detach().numpy()
            nll += [np.log(np.exp(s).sum()) - s[word] for s, word in zip(scores[:-1], text[1:])]
            squares.append(seen["dropped"][row, of_row].detach().numpy() ** 2)
            changes.append(np.diff(seen["raw"][row, of_row].detach().numpy(), axis=0) ** 2)
        terms = 1.5 * np.concatenate(squares).mean() + 0.7 * np.concatenate(changes).mean()
        assert_close(outputs.loss, np.mean(nll) + (terms if training else 0), 1e-6)
        assert torch.equal(seen["dropped"], seen["raw"]) != training


def test_a_text_of_one_word_has_a_finite_regularisation():
    model = tiny(AwdLstmForCausalLM).train()
    ids = torch.tensor([[3], [4]])
    assert model._regularization(model.encoder(ids).last_hidden_state, torch.ones(2, 1, 6), None).isfinite()


def test_parts_of_a_step_add_up_to_its_loss():
    model = tiny(AwdLstmForCausalLM, **NO_DROPOUT).train()
    ids = torch.stack([text[:4] for text in texts() if len(text) >= 4] + [texts()[0][4:8]])
    parts = [model(part, labels=part, num_items_in_batch=torch.tensor(12)).loss for part in ids.chunk(2)]
    assert_close(sum(parts), model(ids, labels=ids).loss.detach())
    assert_close(model.eval()(ids, labels=ids, num_items_in_batch=12).loss, model(ids, labels=ids).loss.detach(), 1e-6)


def test_the_decoder_shares_the_embeddings(tmp_path):
    model = tiny(AwdLstmForCausalLM)
    model.save_pretrained(tmp_path)
    assert not any("lm_head.weight" in name for name in load_file(tmp_path / "model.safetensors"))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert equal(snapshot(model), snapshot(loaded))
    loaded.resize_token_embeddings(VOCAB + 3)
    for each, size in ((model, VOCAB), (loaded, VOCAB + 3)):
        assert each.lm_head.weight is each.encoder.embed_tokens.weight
        assert each(texts()[0].unsqueeze(0)).logits.shape[-1] == each.lm_head.bias.shape[0] == size


def test_a_decoder_of_its_own(tmp_path):
    tiny(AwdLstmForCausalLM, tie_word_embeddings=False).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not torch.equal(loaded.lm_head.weight, loaded.encoder.embed_tokens.weight)
    top = LayerMap.from_model(loaded).parameters_at(4)
    assert list(top) == ["lm_head.weight", "lm_head.bias"]


# --- The classifier ---


def head(model, x):
    """In numpy, of one text."""
    weights = {name: tensor.numpy() for name, tensor in model.classifier.state_dict().items()}

    def norm(x, name):
        scaled = (x - weights[f"{name}.running_mean"]) / np.sqrt(weights[f"{name}.running_var"] + 1e-5)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    hidden = np.maximum(weights["dense.weight"] @ norm(x, "norm") + weights["dense.bias"], 0)
    return weights["out_proj.weight"] @ norm(hidden, "dense_norm") + weights["out_proj.bias"]


@pytest.mark.parametrize("side", ["right", "left", "scattered"])
@pytest.mark.parametrize("max_tokens", [2, 5, 8, 100])
def test_last_state_maximum_and_mean_of_the_last_tokens(side, max_tokens):
    model = tiny(AwdLstmForSequenceClassification, max_tokens=max_tokens)
    logits = model(**batch(side)).logits
    for row, text in enumerate(texts()):
        states = read(model.encoder, text)[0][-max_tokens:]
        assert_close(logits[row], head(model, np.concatenate([states[-1], states.max(0), states.mean(0)])))


@pytest.mark.parametrize("bptt", [1, 4, 100])
def test_pieces_do_not_show_in_evaluation(bptt):
    model = tiny(AwdLstmForSequenceClassification, bptt=bptt)
    assert_close(model(**batch()).logits, tiny(AwdLstmForSequenceClassification)(**batch()).logits.detach())


def plain_features(encoder, text, bptt, max_tokens):
    """Token by token in plain torch; gradients end at the beginning of a piece, counted from the end of the text."""
    first = max(0, len(text) - max_tokens)
    state = [(torch.zeros(layer.hidden_size).double(),) * 2 for layer in encoder.layers]
    outputs = []
    for position, word in enumerate(text):
        if (len(text) - position) % bptt == 0:
            state = [(h.detach(), c.detach()) for h, c in state]
        x = encoder.embed_tokens.weight[word]
        for index, layer in enumerate(encoder.layers):
            h, c = state[index]
            gates = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ h + layer.bias_hh_l0
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            x = o.sigmoid() * c.tanh()
            state[index] = (x, c)
        outputs.append(x)
    kept = torch.stack(outputs[first:])
    return torch.cat([kept[-1], kept.max(0).values, kept.mean(0)])


@pytest.mark.parametrize("max_tokens", [5, 100])
def test_gradients_do_not_cross_pieces(max_tokens):
    settings = {**NO_DROPOUT, "max_tokens": max_tokens}
    model, labels = tiny(AwdLstmForSequenceClassification, **settings).train(), torch.tensor([0, 2, 1, 0])
    model(**batch("left"), labels=labels).loss.backward()
    plain = tiny(AwdLstmForSequenceClassification, **settings).train()
    features = torch.stack([plain_features(plain.encoder, text, 3, max_tokens) for text in texts()])
    F.cross_entropy(plain.classifier(features), labels).backward()
    for (name, parameter), expected in zip(model.named_parameters(), plain.parameters()):
        torch.testing.assert_close(parameter.grad, expected.grad, atol=1e-10, rtol=1e-8, msg=name)


def test_pieces_that_are_not_pooled_keep_no_graph():
    """Whatever is beside the text in the batch: of 11 tokens, pieces of 2, 3, 3 and 3, the last 6 pooled."""
    model, seen = tiny(AwdLstmForSequenceClassification, max_tokens=6), []

    def note(encoder, args, given, outputs):
        seen.append((given["input_ids"].shape[1], outputs.last_hidden_state.requires_grad))

    model.encoder.register_forward_hook(note, with_kwargs=True)
    model(**batch())
    assert seen == [(2, False), (3, False), (3, True), (3, True)]
    with torch.no_grad():
        assert not model(**batch()).logits.requires_grad


def test_without_a_mask_the_padding_token_is_padding():
    model = tiny(AwdLstmForSequenceClassification)
    ids = batch("left")["input_ids"].masked_fill(batch("left")["attention_mask"] == 0, 0)
    expected = model(**batch("left")).logits
    assert torch.equal(model(ids).logits, expected)
    embedded = model(inputs_embeds=model.encoder.embed_tokens(texts()[0].unsqueeze(0)))
    assert_close(embedded.logits[0], expected[0].detach())


@pytest.mark.parametrize(
    ("settings", "labels", "expected"),
    [
        ({"num_labels": 1}, torch.tensor([0.5, 1, 2, -1]).double(), lambda z, y: F.mse_loss(z.squeeze(1), y)),
        ({"num_labels": 3}, torch.tensor([0, 1, 2, 0]), F.cross_entropy),
        ({"num_labels": 3}, torch.eye(4, 3).double(), F.binary_cross_entropy_with_logits),
    ],
)
def test_losses(settings, labels, expected):
    outputs = tiny(AwdLstmForSequenceClassification, **settings)(**batch(), labels=labels)
    torch.testing.assert_close(outputs.loss, expected(outputs.logits, labels))


def test_mixed_and_half_precision():
    model = tiny(AwdLstmForSequenceClassification, **NO_DROPOUT).float()
    expected = model(**batch()).logits
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model.train()(**batch(), labels=torch.tensor([0, 1, 2, 0]))
    outputs.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert torch.allclose(model.bfloat16().eval()(**batch()).logits.float(), expected, atol=0.3)


# --- What is refused ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0: give 1 or more"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0: give 1 or more"),
        ({"bptt": -1}, "bptt is -1: give 1 or more"),
        ({"head_size": 0}, "head_size is 0: give 1 or more"),
        ({"weight_dropout": 1.0}, "weight_dropout is 1.0: give a share from 0 to below 1"),
        ({"classifier_dropout": -0.1}, "classifier_dropout is -0.1: give a share"),
        ({"ar_alpha": -2.0}, "ar_alpha is -2.0: give a factor of the loss, 0 to leave it out"),
        ({"tar_beta": float("nan")}, "tar_beta is nan: give a factor"),
        ({"vocab_size": 5, "pad_token_id": 5}, "pad_token_id is 5: give one of the 5 words, or None"),
        ({"pad_token_id": -1}, "pad_token_id is -1"),
        ({"weigth_dropout": 0.1}, r"no setting 'weigth_dropout'. Did you mean 'weight_dropout'\?"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        AwdLstmConfig(**settings)


def test_settings_given_while_loading_are_checked_too(tmp_path):
    tiny(AwdLstmForCausalLM).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="bptt is 0"):
        AwdLstmForSequenceClassification.from_pretrained(tmp_path, bptt=0)


def test_bad_batches():
    model, ids = tiny(AwdLstmForSequenceClassification).train(), torch.tensor([[1, 2], [0, 0]])
    with pytest.raises(ValueError, match=r"has one text, .* give 2 or more, and set dataloader_drop_last=True"):
        model(ids[:1])
    with pytest.raises(ValueError, match=r"Text 1 of the batch \(from 0\) has no token: leave empty texts out"):
        model(ids)
    with pytest.raises(ValueError, match="Give either input_ids or inputs_embeds"):
        model()
    with pytest.raises(ValueError, match="Give either input_ids or inputs_embeds"):
        model.encoder(ids, inputs_embeds=torch.zeros(2, 2, 6))
    assert model.eval()(ids[:1]).logits.shape == (1, LABELS)
