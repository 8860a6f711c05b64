"""From hidden states to one vector for each text: pooling over tokens, layers and chunks, and a BiLSTM.

Imports nothing of this package: the file is saved beside models (`trust_remote_code`).
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the second to last dimension, of the entries where `mask` is True: (..., n, d) -> (..., d)."""
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(-2)
    return total / mask.sum(-1, keepdim=True).to(x.dtype)


def masked_max(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Maximum over the second to last dimension, as in `masked_mean`."""
    return x.masked_fill(~mask.unsqueeze(-1), torch.finfo(x.dtype).min).amax(-2)


def pool_tokens(hidden: torch.Tensor, mask: torch.Tensor, how: str) -> torch.Tensor:
    """One vector for each sequence, whichever side it is padded on.

    Args:
        hidden (`torch.Tensor`): (sequences, tokens, size).
        mask (`torch.Tensor`): (sequences, tokens), False at padding.
        how (`str`): `"cls"` (first token), `"mean"`, `"max"`, or `"concat"` (last token, maximum, mean).

    Returns:
        `torch.Tensor`: (sequences, size), (sequences, 3 * size) for `"concat"`.

    Paper: Howard & Ruder 2018, section 3.3 (`concat`).
    """
    if how == "mean":
        return masked_mean(hidden, mask)
    if how == "max":
        return masked_max(hidden, mask)
    sequences = torch.arange(len(hidden), device=hidden.device)
    if how == "cls":
        return hidden[sequences, mask.int().argmax(1)]
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    return torch.cat([hidden[sequences, last], masked_max(hidden, mask), masked_mean(hidden, mask)], dim=-1)


def pad_by_text(x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the chunks of each text into a row of their own.

    Args:
        x (`torch.Tensor`): (chunks of all texts, size), those of a text as neighbours.
        counts (`torch.Tensor`): (texts,), chunks of each.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: (texts, most chunks, size), zero where a text has fewer, and the mask
        (texts, most chunks).
    """
    mask = torch.arange(int(counts.max()), device=x.device) < counts.unsqueeze(1)
    padded = x.new_zeros(*mask.shape, x.shape[-1])
    padded[mask] = x
    return padded, mask


class SelfAttention(nn.Module):
    """Weighted means, the weights learned: softmax(W2 tanh(W1 x)) x, one mean for each of `hops`.

    Args:
        size (`int`): Of the vectors.
        attention_size (`int`): Rows of W1.
        hops (`int`, *optional*, defaults to 1): Rows of W2.

    Shapes: (..., n, size), mask (..., n) -> (..., hops * size).

    Paper: Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", section 2.1, equations 5 and 6.
    """

    def __init__(self, size: int, attention_size: int, hops: int = 1):
        super().__init__()
        self.hidden = nn.Linear(size, attention_size, bias=False)
        self.scores = nn.Linear(attention_size, hops, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See the class."""
        scores = self.scores(torch.tanh(self.hidden(x)))
        weights = scores.masked_fill(~mask.unsqueeze(-1), torch.finfo(scores.dtype).min).softmax(-2)
        return (weights.transpose(-1, -2).to(x.dtype) @ x).flatten(-2)


class Pooling(nn.Module):
    """Combine vectors: of the layers of a token, of the chunks of a text.

    Args:
        how (`str`): `"concat"` (needs the same number n everywhere), `"mean"`, `"max"` or `"attention"`.
        size (`int`): Of the vectors.
        attention_size (`int`): As in `SelfAttention`.

    Shapes: (..., n, size), mask (..., n) -> (..., size), (..., n * size) for `"concat"`.
    """

    def __init__(self, how: str, size: int, attention_size: int):
        super().__init__()
        self.how = how
        if how == "attention":
            self.attention = SelfAttention(size, attention_size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See the class."""
        if self.how == "concat":
            return x.flatten(-2)
        if self.how == "attention":
            return self.attention(x, mask)
        return masked_mean(x, mask) if self.how == "mean" else masked_max(x, mask)


class BiLSTMSelfAttention(nn.Module):
    """A bidirectional LSTM over the tokens, then self-attention with several hops over its states.

    Args:
        size (`int`): Of the token vectors.
        lstm_size (`int`): States of each direction.
        attention_size (`int`), hops (`int`): As in `SelfAttention`.

    Shapes: (sequences, tokens, size), mask (sequences, tokens) -> (sequences, hops * 2 * lstm_size).

    Paper: Lin et al. 2017, section 2.1.

    Differs: no penalty for hops that look at the same tokens (section 2.2).
    """

    def __init__(self, size: int, lstm_size: int, attention_size: int, hops: int):
        super().__init__()
        self.lstm = nn.LSTM(size, lstm_size, batch_first=True, bidirectional=True)
        self.attention = SelfAttention(2 * lstm_size, attention_size, hops)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See the class."""
        # Padding goes to the end, from whichever side: the LSTM must not read it.
        order = (~mask).int().argsort(dim=1, stable=True)
        x = x.gather(1, order.unsqueeze(-1).expand_as(x))
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.attention(states, mask.gather(1, order))
