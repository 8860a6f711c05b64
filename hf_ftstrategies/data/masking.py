"""Masks for masked language modelling: drawn once and stored, or anew in every epoch.

Paper: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
section 3.1 ("Masked LM") and appendix A.1; whole words as in the authors' later code (`do_whole_word_mask`).

Labels are sparse: `masked_positions` says where something is to be predicted and `labels` what, so the model needs
logits at these positions only, and not for the whole vocabulary at every token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MASKED, RANDOM = 0.8, 0.1  # shares of the chosen positions; the others keep their token
IGNORED = -100  # label of a padded place, which torch's cross-entropy leaves out


@dataclass
class Masker:
    """Draw the masked positions of a sequence.

    Of a sequence of L tokens, special ones included, `n = min(max_predictions, max(1, round(share * L)))` positions
    are chosen, fewer only where it has fewer to choose from. Special tokens are never chosen; the unknown token is
    one of the text's. At 80 % of the positions the mask token is put, at 10 % a token drawn from the whole
    vocabulary, and 10 % stay.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Of the model; must have a mask token.
        share (`float`, *optional*, defaults to 0.15): Of the tokens that are chosen.
        max_predictions (`int`, *optional*): Positions of a sequence at most; 20 in BERT's code, where sequences
            have 128 tokens. None for no limit.
        whole_words (`bool`, *optional*, defaults to False): Choose words with all their pieces, as long as they
            fit into n: a word too long for what is left is passed over, so there can be fewer than n positions. If
            none fits, the first n pieces of the word drawn first are chosen.

    Raises:
        ValueError: The tokenizer has no mask token, a share outside 0 to 1, no prediction.

    Paper: Devlin et al. 2019, section 3.1.
    Differs: a segment begins a word; in the authors' code a segment cut inside a word continues the last word before
    the separator.
    """

    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    share: float = 0.15
    max_predictions: int | None = None
    whole_words: bool = False

    def __post_init__(self):
        if self.tokenizer.mask_token_id is None:
            raise ValueError(f"{type(self.tokenizer).__name__} has no mask token: this model does not predict masks.")
        if not 0 < self.share <= 1:
            raise ValueError(f"share of masked tokens is {self.share}: give a number above 0, at most 1.")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(f"max_predictions is {self.max_predictions}: give 1 or more, or None for no limit.")
        special = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
        self._is_text = np.ones(len(self.tokenizer), bool)
        self._is_text[list(special)] = False
        self._starts_word = word_starts(self.tokenizer) if self.whole_words else None

    def __call__(self, ids: Sequence[int], generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Mask one sequence.

        Args:
            ids (`Sequence[int]`): Its tokens with the special ones, shape (L,).
            generator (`np.random.Generator`): Gives a number for each candidate (token or word; those with the
                smallest are chosen), then one for each chosen position, then as many random tokens.

        Returns:
            `dict[str, np.ndarray]`: `input_ids` (L,) with masks, `masked_positions` (n,) in rising order, `labels`
            (n,): the original tokens there. Integers of 64 bits.
        """
        ids = np.array(ids, np.int64)
        places = np.flatnonzero(self._is_text[ids])
        count = max(1, round(self.share * len(ids)))
        count = min(count, len(places), self.max_predictions or count)
        places = self._draw(ids, places, count, generator)
        labels = ids[places]
        action = generator.random(len(places))
        random_ids = generator.integers(len(self._is_text), size=len(places))
        replaced = np.where(action < MASKED + RANDOM, random_ids, labels)
        ids[places] = np.where(action < MASKED, self.tokenizer.mask_token_id, replaced)
        return {"input_ids": ids, "masked_positions": places, "labels": labels}

    def _draw(self, ids: np.ndarray, places: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
        if self._starts_word is None:
            order = np.argsort(generator.random(len(places)), kind="stable")
            return np.sort(places[order[:count]])
        follows_text = np.diff(places, prepend=-2) == 1
        words = np.cumsum(self._starts_word[ids[places]] | ~follows_text) - 1
        sizes = np.bincount(words)
        order = np.argsort(generator.random(len(sizes)), kind="stable")
        chosen = np.zeros(len(sizes), bool)
        left = count
        for word in order:
            if sizes[word] <= left:
                chosen[word] = True
                left -= sizes[word]
            if not left:
                break
        if left == count:
            return places[words == order[0]][:count] if count else places
        return places[chosen[words]]


def word_starts(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Tell which tokens of the vocabulary begin a word.

    The tokenizer's own marks say so: `##` at pieces that continue a word (WordPiece), `Ġ` (byte-level) or `▁`
    (SentencePiece) at those that begin one; the mark most tokens carry is taken. Without any, every token is a word.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Any Transformers tokenizer.

    Returns:
        `np.ndarray`: Booleans, shape (vocabulary,).

    Differs: Chinese and Japanese text has no spaces. BERT's tokenizer makes each character a word; for byte-level
    and SentencePiece tokenizers all characters between two spaces are one word.
    """
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    marked = {mark: np.array([token.startswith(mark) for token in tokens]) for mark in ("##", "Ġ", "▁")}
    mark = max(marked, key=lambda mark: marked[mark].sum())
    starts = ~marked[mark] if mark == "##" else marked[mark]
    starts[list(tokenizer.added_tokens_decoder)] = True
    return starts


def mask_examples(
    batch: Mapping[str, Sequence],
    indices: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    share: float = 0.15,
    max_predictions: int | None = None,
    whole_words: bool = False,
    seed: int = 12345,
) -> dict[str, list]:
    """Draw masks once, to be stored with the examples; for `datasets.map(batched=True, with_indices=True)`.

    The masks are those of `MaskedExamples` in epoch 0: of an example they depend on its index alone.

    Args:
        batch (`Mapping[str, Sequence]`): Examples with `input_ids`, as `build_next_sentence_examples` makes them.
        indices (`Sequence[int]`): Their places in the data set.
        tokenizer (`PreTrainedTokenizerBase`), share (`float`), max_predictions (`int`), whole_words (`bool`): As in
            `Masker`.
        seed (`int`, *optional*, defaults to 12345): Of the masks; not negative.

    Returns:
        `dict[str, list]`: `input_ids` with masks, `masked_positions` and `labels`, one array an example.

    Raises:
        ValueError: As `Masker`.

    Paper: Devlin et al. 2019; BERT's code stores masks, with `duplication_factor` different ones of a document.
    """
    masker = Masker(tokenizer, share, max_predictions, whole_words)
    rows = [masker(ids, _generator(seed, 0, index)) for ids, index in zip(batch["input_ids"], indices, strict=True)]
    return {name: [row[name] for row in rows] for name in ("input_ids", "masked_positions", "labels")}


class MaskedExamples(torch.utils.data.Dataset):
    """Examples that get other masks in every epoch.

    The masks of example i follow from `seed`, the epoch and i alone: they are the same after a resume, and with any
    number of processes and workers. Somebody must say when an epoch begins: Trainer calls `set_epoch` on one process,
    but on several it does not (accelerate 1.15 tells the sampler only); there a callback has to, in `on_epoch_begin`.

    Args:
        examples (`Mapping[str, Sequence]` or `Dataset`): Columns with `input_ids`, as
            `build_next_sentence_examples` makes them; or rows with it.
        tokenizer (`PreTrainedTokenizerBase`), share (`float`), max_predictions (`int`), whole_words (`bool`): As in
            `Masker`.
        seed (`int`, *optional*, defaults to 12345): Of the masks; not negative.

    Raises:
        ValueError: As `Masker`.

    Paper: Liu et al. 2019, "RoBERTa", section 4.1 (dynamic masking).
    """

    def __init__(
        self,
        examples: Mapping[str, Sequence] | Sequence[Mapping[str, Any]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        share: float = 0.15,
        max_predictions: int | None = None,
        whole_words: bool = False,
        seed: int = 12345,
    ):
        self.examples = examples
        self.masker = Masker(tokenizer, share, max_predictions, whole_words)
        self.seed = seed
        # In shared memory: workers of a data loader that outlive an epoch must hear of the next one.
        self._epoch = torch.tensor(0).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of an epoch, counted from 0; see the class for who calls it."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.examples["input_ids"] if isinstance(self.examples, Mapping) else self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = range(len(self))[index]
        if isinstance(self.examples, Mapping):
            row = {name: column[index] for name, column in self.examples.items()}
        else:
            row = self.examples[index]
        return row | self.masker(row["input_ids"], _generator(self.seed, int(self._epoch), index))


@dataclass
class PretrainingCollator:
    """Put masked examples into one padded batch.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Pads on its side, with its token.

    Call it with rows of `MaskedExamples` or `mask_examples`; other columns are left out. With B rows, the longest of
    T tokens and the one with most masks of P, it returns a `dict[str, torch.Tensor]`:

    - `input_ids`, `attention_mask` and `token_type_ids`, if the rows have them, (B, T).
    - `masked_positions` (B, P), padded with 0, and `labels` (B, P), padded with -100.
    - `next_sentence_label` (B,), if the rows have it.
    """

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Make the batch; see the class."""
        side = self.tokenizer.padding_side
        batch = {"input_ids": _pad(rows, "input_ids", self.tokenizer.pad_token_id, side)}
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        places = torch.arange(batch["input_ids"].shape[1])
        batch["attention_mask"] = (places < lengths[:, None]).long()
        if side == "left":
            batch["attention_mask"] = batch["attention_mask"].flip(1)
        if "token_type_ids" in rows[0]:
            batch["token_type_ids"] = _pad(rows, "token_type_ids", self.tokenizer.pad_token_type_id, side)
        batch["masked_positions"] = _pad(rows, "masked_positions", 0, "right")
        batch["labels"] = _pad(rows, "labels", IGNORED, "right")
        if side == "left":
            shift = (len(places) - lengths)[:, None]
            batch["masked_positions"] += shift * (batch["labels"] != IGNORED)
        if "next_sentence_label" in rows[0]:
            batch["next_sentence_label"] = torch.tensor([int(row["next_sentence_label"]) for row in rows])
        return batch


def _pad(rows: Sequence[Mapping[str, Any]], column: str, value: int, side: str) -> torch.Tensor:
    sequences = [torch.as_tensor(row[column], dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=value, padding_side=side)


def _generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    # A counter-based generator: no two of these streams meet.
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, index]))
