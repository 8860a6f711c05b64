"""Layers of an AWD-LSTM: its dropouts, its LSTM, and ULMFiT's classifier head.

Imports nothing of this package: the file is saved beside models (`trust_remote_code`).
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class LockedDropout(nn.Dropout):
    """Variational dropout: a feature of a sequence is dropped at all time steps or at none.

    Shapes: (sequences, tokens, size) -> the same.

    Paper: Gal & Ghahramani 2016; Merity et al. 2018, section 4.2.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p, self.training)


class WordDropout(nn.Dropout):
    """Embedding dropout: a word of the vocabulary is dropped wherever it occurs in the batch, or nowhere.

    Paper: Gal & Ghahramani 2016; Merity et al. 2018, section 4.3.
    """

    def forward(self, x: torch.Tensor, input_ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """Drop words.

        Args:
            x (`torch.Tensor`): (sequences, tokens, size), the embeddings of `input_ids`.
            input_ids (`torch.Tensor`): (sequences, tokens).
            vocab_size (`int`): Words that have an embedding.
        """
        if not self.training:
            return x
        return x * F.dropout(x.new_ones(vocab_size, 1), self.p)[input_ids]


class WeightDropLSTM(nn.LSTM):
    """One LSTM layer that trains with DropConnect on its hidden-to-hidden matrix, a new mask each forward pass.

    Parameters and state dict are those of `nn.LSTM`: what is dropped is a copy.

    Args:
        input_size (`int`), hidden_size (`int`): As of `nn.LSTM`.
        weight_dropout (`float`): Share of the entries of `weight_hh_l0` that are dropped.

    Paper: Wan et al. 2013; Merity et al. 2018, section 2.
    """

    def __init__(self, input_size: int, hidden_size: int, weight_dropout: float):
        super().__init__(input_size, hidden_size, batch_first=True)
        self.weight_dropout = weight_dropout

    def forward(
        self,
        x: torch.Tensor,
        lengths: torch.Tensor,
        state: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Read sequences on from a state.

        Args:
            x (`torch.Tensor`): (sequences, tokens, input size), padded at the end.
            lengths (`torch.Tensor`): (sequences,) on the CPU, tokens without the padding.
            state (`tuple[torch.Tensor, torch.Tensor]`, *optional*): h and c before, (sequences, hidden size) each;
                zeros if None.

        Returns:
            `tuple`: (sequences, tokens, hidden size), and h and c after the last token of each sequence. A sequence
            of length 0 keeps its state.
        """
        h, c = state or [x.new_zeros(len(x), self.hidden_size)] * 2
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        longest_first, as_before = packed.sorted_indices, packed.unsorted_indices
        before = (h[longest_first].unsqueeze(0), c[longest_first].unsqueeze(0))
        dropped = F.dropout(self.weight_hh_l0, self.weight_dropout, self.training)
        weights = (self.weight_ih_l0, dropped, self.bias_ih_l0, self.bias_hh_l0)
        # Biases, layers, dropout between them, gradients (a frozen layer in eval mode passes them on), directions.
        how = (True, 1, 0.0, torch.is_grad_enabled(), False)
        output, *after = torch.lstm(packed.data, packed.batch_sizes, before, weights, *how)
        packed = PackedSequence(output, packed.batch_sizes, longest_first, as_before)
        output, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        reads = (lengths > 0).to(x.device).unsqueeze(1)
        h, c = (torch.where(reads, new[0, as_before], old) for new, old in zip(after, (h, c)))
        return output, (h, c)


class ConcatPoolingHead(nn.Module):
    """ULMFiT's classifier on pooled states: two blocks of batch norm, dropout and linear, ReLU between them.

    Args:
        size (`int`): Of the pooled states.
        hidden_size (`int`): Units of the first block.
        num_labels (`int`): Units of the second.
        dropouts (`tuple[float, float]`): Of the blocks.

    Shapes: (texts, size) -> (texts, num_labels).

    Paper: Howard & Ruder 2018, section 3.3.
    """

    def __init__(self, size: int, hidden_size: int, num_labels: int, dropouts: tuple[float, float]):
        super().__init__()
        self.norm = nn.BatchNorm1d(size)
        self.dropout = nn.Dropout(dropouts[0])
        self.dense = nn.Linear(size, hidden_size)
        self.dense_norm = nn.BatchNorm1d(hidden_size)  # the name keeps it out of weight decay
        self.dense_dropout = nn.Dropout(dropouts[1])
        self.out_proj = nn.Linear(hidden_size, num_labels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = F.relu(self.dense(self.dropout(self.norm(x))))
        return self.out_proj(self.dense_dropout(self.dense_norm(x)))


def padding_last(mask: torch.Tensor) -> torch.Tensor:
    """The order of columns, for each row, in which real tokens come first, as they stand, and padding last.

    Args:
        mask (`torch.Tensor`): (sequences, tokens), False at padding, wherever it is.

    Returns:
        `torch.Tensor`: (sequences, tokens), indices; their `argsort(1)` leads back.
    """
    return (~mask).int().argsort(dim=1, stable=True)


def reorder(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """`x` (sequences, tokens, ...) with the columns of each row in `order` (sequences, tokens)."""
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), order]
