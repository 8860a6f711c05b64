"""Long texts as several chunks: every token is read, and a row of the data set stays one text.

Paper: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.2 (hierarchical methods): a
text of L tokens is divided into k = ceil(L / 510) fractions, each encoded by itself and the k representations
combined. How they are combined is the model's `chunk_pooling` (`modeling/classifier.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_ftstrategies.data.truncation import _content_budget, _content_ids, _ends, _template, truncate

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


def encode_chunks(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    max_length: int = 512,
    stride: int = 0,
    max_chunks: int | None = None,
    strategy: str = "head_tail",
    head: int | float = 128,
) -> dict[str, list]:
    """Turn a batch of texts into chunks of model inputs, unpadded; made for `datasets.map(batched=True)`.

    A text of L content tokens becomes k = ceil(L / (max_length - special tokens)) chunks, at least one, each
    with its own special tokens. The last one may be short.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Any Transformers tokenizer.
        texts (`Sequence[str]`): The texts.
        max_length (`int`, *optional*, defaults to 512): Number of tokens of a chunk at most, special tokens
            included.
        stride (`int`, *optional*, defaults to 0): Number of content tokens that a chunk repeats from the end
            of the one before, as in Transformers' tokenizers.
        max_chunks (`int`, *optional*): Number of chunks of a text at most; None for all of them. A longer text
            is truncated first, to the tokens that this number of chunks holds.
        strategy (`str`, *optional*, defaults to `"head_tail"`), head (`int` or `float`, *optional*, defaults to
            128): Which tokens a too long text keeps, as in `truncate`; without effect while `max_chunks` is
            None. With `max_chunks=1` the one chunk is the text that `encode_batch` makes of them.

    Returns:
        `dict[str, list]`: One entry a text: `input_ids` and, if the tokenizer gives them, `token_type_ids` (both
        a list of chunks, each a list of ints), `chunks` (their number), `length` (tokens of all chunks, special
        ones included: what the encoder reads) and `truncated` (whether `max_chunks` cut something). The
        attention mask is made with the padding, by `ChunkCollator`.

    Raises:
        ValueError: As `encode_batch`; `stride` negative or not below the content tokens of a chunk; `max_chunks`
            below 1; a text without tokens where the tokenizer adds no special ones either.

    Paper: Sun et al. 2019, section 5.3.2.
    """
    template = _template(tokenizer, pair=False)
    budget = _content_budget(tokenizer, template, max_length)
    if not 0 <= stride < budget:
        raise ValueError(f"stride is {stride}: give 0 to {budget - 1}, a chunk holds {budget} content tokens.")
    step = budget - stride
    kept = contents = _content_ids(tokenizer, texts)
    if max_chunks is not None:
        if max_chunks < 1:
            raise ValueError(f"max_chunks is {max_chunks}: give 1 or more, or None for all chunks.")
        capacity = budget + (max_chunks - 1) * step
        _ends(capacity, strategy, head)  # complain also when no text of this batch is too long
        kept = [truncate(ids, capacity, strategy, head) for ids in contents]

    cut = [[ids[i : i + budget] for i in range(0, max(len(ids) - stride, 1), step)] for ids in kept]
    batch = {"input_ids": [[template.fill([ids]) for ids in chunks] for chunks in cut]}
    if template.types is not None:
        batch["token_type_ids"] = [[template.fill_types([ids]) for ids in chunks] for chunks in cut]
    batch["chunks"] = [len(chunks) for chunks in cut]
    batch["length"] = [sum(map(len, chunks)) for chunks in batch["input_ids"]]
    batch["truncated"] = [len(ids) < len(whole) for ids, whole in zip(kept, contents, strict=True)]
    if 0 in batch["length"]:
        raise ValueError(
            f"Text {texts[batch['length'].index(0)]!r} has no tokens, and this tokenizer adds no special ones: there "
            "is nothing to encode. Drop empty texts."
        )
    return batch


def describe_reading(
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    strategy: str,
    head: int | float,
    chunked: bool = False,
    stride: int = 0,
    max_chunks: int | None = None,
) -> dict[str, int | None]:
    """What `encode_batch`, or with `chunked` `encode_chunks`, does to single texts, in numbers.

    Args:
        As of these.

    Returns:
        `dict`: `max_length`; `limit`, content tokens above which a text is cut, None = never; `front` and `back`, what
        is then kept; with `chunked`, `chunk_step`, content tokens from one chunk to the next.
    """
    budget = _content_budget(tokenizer, _template(tokenizer, pair=False), max_length)
    limit, steps = budget, {}
    if chunked:
        steps = {"chunk_step": budget - stride}
        limit = None if max_chunks is None else budget + (max_chunks - 1) * (budget - stride)
    front, back = (None, None) if limit is None else _ends(limit, strategy, head)
    return {"max_length": max_length, "limit": limit, "front": front, "back": back, **steps}


@dataclass
class ChunkCollator:
    """Put the chunks of all texts of a batch into one padded batch of the encoder.

    Its size, and with it memory and time, grows with the number of chunks in the batch, not with the number of
    texts: `per_device_train_batch_size` texts of up to `max_chunks` chunks (`encode_chunks`) are at most
    `per_device_train_batch_size * max_chunks` sequences, and without `max_chunks` one long text can be more than
    the device holds.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Pads on its side, with its token.

    Call it with rows of `encode_chunks`, with or without `labels`; other columns are left out. With N chunks in
    all, the longest of T tokens, B rows, it returns a `dict[str, torch.Tensor]`:

    - `chunk_counts` (B,): chunks of each text; those of a text are neighbours, in their order.
    - `input_ids`, `attention_mask` and `token_type_ids`, if the rows have them, (N, T).
    - `labels`, (B,) of integers (classes) or floats (numbers), or (B, labels) of floats.

    Differs: rows and chunks of a batch differ in number, so a batch cannot be split along its first dimension:
    `DataParallel` and accelerate's `dispatch_batches=True` (its default for streamed data on several processes)
    need one chunk a text.
    """

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make the batch; see the class."""
        import torch
        from transformers import DataCollatorWithPadding

        names = [name for name in ("input_ids", "token_type_ids") if name in rows[0]]
        chunks = [
            dict(zip(names, parts, strict=True))
            for row in rows
            for parts in zip(*(row[name] for name in names), strict=True)
        ]
        # The counts come first: the Trainer reads the number of rows off the first tensor.
        batch = {"chunk_counts": torch.tensor([len(row["input_ids"]) for row in rows])}
        batch.update(DataCollatorWithPadding(self.tokenizer)(chunks))
        if "labels" in rows[0]:
            batch["labels"] = torch.stack([torch.as_tensor(row["labels"]) for row in rows])
        return batch
