"""The layers of an AWD-LSTM: numbers as of equations in numpy, and what each dropout drops."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hf_ftstrategies.modeling.awd_lstm_layers import LockedDropout, WeightDropLSTM, WordDropout, padding_last, reorder


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(weights, x, state=None):
    """One layer over one sequence (tokens, size), in float64: its states (tokens, size), and the last h and c."""
    w_ih, w_hh, b_ih, b_hh = (np.asarray(w, dtype=np.float64) for w in weights)
    h, c = state or np.zeros((2, w_hh.shape[1]))
    states = []
    for token in np.asarray(x, dtype=np.float64):
        i, f, g, o = np.split(w_ih @ token + b_ih + w_hh @ h + b_hh, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states), (h, c)


def weights_of(layer):
    return [getattr(layer, name).detach().numpy() for name in nn.LSTM(1, 1)._flat_weights_names]


def layer(weight_dropout=0.5):
    torch.manual_seed(0)
    return WeightDropLSTM(4, 5, weight_dropout).double()


def sequences():
    torch.manual_seed(1)
    x, state = torch.randn(4, 6, 4).double(), torch.randn(2, 4, 5).double()
    return x, torch.tensor([6, 2, 0, 4]), tuple(state)


def test_states_are_those_of_the_equations():
    """Each sequence to its end; one without tokens keeps its state."""
    x, lengths, state = sequences()
    output, (h, c) = layer().eval()(x, lengths, state)
    for row, length in enumerate(lengths):
        expected, last = lstm(weights_of(layer()), x[row, :length], (state[0][row].numpy(), state[1][row].numpy()))
        np.testing.assert_allclose(output[row, :length].detach(), expected.reshape(-1, 5), atol=1e-12)
        np.testing.assert_allclose(h[row].detach(), last[0], atol=1e-12)
        np.testing.assert_allclose(c[row].detach(), last[1], atol=1e-12)


def test_the_first_state_is_zero():
    x, lengths, _ = sequences()
    zeros = (torch.zeros(4, 5).double(),) * 2
    for a, b in zip(layer().eval()(x, lengths)[0], layer().eval()(x, lengths, zeros)[0]):
        assert torch.equal(a, b)


def test_weight_dropout_drops_entries_of_the_hidden_to_hidden_matrix_alone():
    """One mask for all tokens and sequences; the others are as in evaluation."""
    module, (x, lengths, state) = layer(), sequences()
    torch.manual_seed(2)
    mask = F.dropout(torch.ones(20, 5).double(), 0.5).numpy()
    assert set(mask.flatten()) == {0.0, 2.0}
    torch.manual_seed(2)
    output, _ = module.train()(x, lengths, state)
    weights = weights_of(layer())
    weights[1] = weights[1] * mask
    for row in (0, 1, 3):
        expected, _ = lstm(weights, x[row, : lengths[row]], (state[0][row].numpy(), state[1][row].numpy()))
        np.testing.assert_allclose(output[row, : lengths[row]].detach(), expected, atol=1e-12)
    output.sum().backward()
    assert torch.equal(module.weight_hh_l0.grad == 0, torch.tensor(mask == 0))
    assert torch.equal(module.weight_hh_l0, layer().weight_hh_l0)


def test_parameters_are_those_of_torch():
    theirs = nn.LSTM(4, 5, batch_first=True).double()
    theirs.load_state_dict(layer().state_dict())
    x, lengths, _ = sequences()
    torch.testing.assert_close(theirs(x)[0][0], layer().eval()(x, lengths)[0][0])


def test_a_mask_each_forward_pass():
    x, lengths, state = sequences()
    module = layer().train()
    assert not torch.equal(module(x, lengths, state)[0], module(x, lengths, state)[0])


def test_locked_dropout_drops_features_at_all_times():
    torch.manual_seed(0)
    x = torch.randn(3, 7, 40)
    factors = LockedDropout(0.25)(x) / x
    torch.testing.assert_close(factors, factors[:, :1].expand_as(x))
    dropped = factors[:, 0] == 0
    torch.testing.assert_close(factors[:, 0], torch.where(dropped, 0, torch.tensor(4 / 3)))
    assert dropped.float().mean().item() == pytest.approx(0.25, abs=0.08)
    assert not torch.equal(dropped[0], dropped[1])


def test_word_dropout_drops_words_everywhere():
    torch.manual_seed(0)
    ids = torch.randint(0, 60, (8, 50))
    factors = WordDropout(0.25)(torch.ones(8, 50, 4), ids, 60)
    for word in ids.unique():
        assert len(factors[ids == word].unique()) == 1
    assert torch.allclose(factors.unique(), torch.tensor([0, 4 / 3]))
    of_word = torch.stack([factors[ids == word][0, 0] for word in ids.unique()])
    assert (of_word == 0).float().mean().item() == pytest.approx(0.25, abs=0.15)


def test_no_dropout_in_evaluation():
    x, ids = torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(LockedDropout(0.5).eval()(x), x)
    assert torch.equal(WordDropout(0.5).eval()(x, ids, 1), x)


def test_padding_goes_last_and_back():
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]]).bool()
    x = torch.arange(10).reshape(2, 5)
    order = padding_last(mask)
    moved = reorder(x, order)
    assert moved.tolist() == [[1, 2, 4, 0, 3], [5, 6, 7, 8, 9]]
    assert torch.equal(reorder(moved, order.argsort(1)), x)
