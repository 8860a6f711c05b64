"""Which tokens of a too long text are kept, and texts turned into model inputs.

Paper: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1: the key information
of a document is at its beginning and its end, so keeping the first 128 and the last 382 of 510 tokens beats
cutting one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STRATEGIES = ("head_tail", "head", "tail", "half")


def truncate(ids: Sequence[int], max_length: int, strategy: str = "head_tail", head: int | float = 128) -> list[int]:
    """Shorten one text to at most `max_length` tokens; a shorter text is returned as it is.

    Args:
        ids (`Sequence[int]`): Content tokens only, without special tokens.
        max_length (`int`): Number of content tokens to keep at most; for a model limit of 512 and BERT's two
            special tokens this is 510.
        strategy (`str`, *optional*, defaults to `"head_tail"`):
            - `"head_tail"`: the first `head` tokens and the last `max_length - head`.
            - `"head"`: the first `max_length` tokens.
            - `"tail"`: the last `max_length` tokens.
            - `"half"`: the first and the last `max_length // 2` tokens; an odd `max_length` loses a token, as
              in the paper's code (`trunc_medium=0`).
        head (`int` or `float`, *optional*, defaults to 128): Tokens kept from the front by `"head_tail"`, or
            a share of `max_length` between 0 and 1 (rounded down). Without effect on the other strategies.

    Returns:
        `list[int]`: At most `max_length` tokens, in their order.

    Raises:
        ValueError: Unknown strategy, negative `max_length`, or `head` that leaves no room for a tail.

    Paper: Sun et al. 2019, section 5.3.1.
    """
    return _keep_ends(ids, max_length, *_ends(max_length, strategy, head))


def truncate_pair(
    first: Sequence[int],
    second: Sequence[int],
    max_length: int,
    strategy: str = "head_tail",
    head: int | float = 128,
) -> tuple[list[int], list[int]]:
    """Shorten two texts that share one budget: longest first, then each to its share by the strategy.

    The shares are those of taking tokens from the longer text one by one, from the second when both are
    equally long: a text of at most half the budget stays whole and the other gets the rest, otherwise the
    first gets `ceil(max_length / 2)` and the second `floor(max_length / 2)`. A text longer than its share is
    then cut by the strategy; `"head_tail"` keeps the proportion `head : max_length` of the share, rounded
    down, from its front.

    Args:
        first (`Sequence[int]`): Content tokens of the first text.
        second (`Sequence[int]`): Content tokens of the second text.
        max_length (`int`): Number of content tokens to keep at most, both texts together.
        strategy (`str`, *optional*, defaults to `"head_tail"`): As in `truncate`.
        head (`int` or `float`, *optional*, defaults to 128): As in `truncate`, of the common budget.

    Returns:
        `tuple[list[int], list[int]]`: The two shortened texts.

    Raises:
        ValueError: As `truncate`.

    Differs: the paper's code cuts pairs at the right end only; that is `strategy="head"` here.
    """
    front, _ = _ends(max_length, strategy, head)
    first_share = min(len(first), max((max_length + 1) // 2, max_length - len(second)))
    second_share = min(len(second), max_length - first_share)

    def shorten(ids: Sequence[int], share: int) -> list[int]:
        if strategy == "head_tail":
            kept = front * share // max(max_length, 1)
            return _keep_ends(ids, share, kept, share - kept)
        return _keep_ends(ids, share, *_ends(share, strategy, head))

    return shorten(first, first_share), shorten(second, second_share)


def encode_batch(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 512,
    strategy: str = "head_tail",
    head: int | float = 128,
) -> dict[str, list]:
    """Turn a batch of texts into model inputs, unpadded; made for `datasets.map(batched=True)`.

    The special tokens, their places and their token types are those the tokenizer itself puts around a text
    or a pair, whatever its family (`[CLS] A [SEP] B [SEP]`, `<s> A </s></s> B </s>`, ...).

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Any Transformers tokenizer.
        texts (`Sequence[str]`): The texts.
        pairs (`Sequence[str]`, *optional*): The second text of each.
        max_length (`int`, *optional*, defaults to 512): Number of tokens at most, special tokens included.
        strategy (`str`, *optional*, defaults to `"head_tail"`): As in `truncate`; pairs as in
            `truncate_pair`.
        head (`int` or `float`, *optional*, defaults to 128): As in `truncate`.

    Returns:
        `dict[str, list]`: `input_ids`, `attention_mask`, `token_type_ids` if the tokenizer gives them,
        `length` (tokens that are left, special ones included) and `truncated` (whether tokens were lost), one
        entry a text.

    Raises:
        ValueError: As `truncate`, `max_length` above the tokenizer's limit or not above its special tokens,
            or as many pairs as texts are not given.
    """
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"Got {len(texts)} texts but {len(pairs)} second texts; give one for each.")
    template = _template(tokenizer, pair=pairs is not None)
    budget = _content_budget(tokenizer, template, max_length)
    _ends(budget, strategy, head)  # complain also when no text of this batch is too long

    contents = [(ids,) for ids in _content_ids(tokenizer, texts)]
    if pairs is None:
        kept = [(truncate(ids, budget, strategy, head),) for (ids,) in contents]
    else:
        contents = [(*one, two) for one, two in zip(contents, _content_ids(tokenizer, pairs), strict=True)]
        kept = [truncate_pair(one, two, budget, strategy, head) for one, two in contents]

    input_ids = [template.fill(sides) for sides in kept]
    batch = {"input_ids": input_ids, "attention_mask": [[1] * len(ids) for ids in input_ids]}
    if template.types is not None:
        batch["token_type_ids"] = [template.fill_types(sides) for sides in kept]
    batch["length"] = [len(ids) for ids in input_ids]
    batch["truncated"] = [
        sum(map(len, sides)) < sum(map(len, whole)) for sides, whole in zip(kept, contents, strict=True)
    ]
    return batch


def _keep_ends(ids: Sequence[int], max_length: int, front: int, back: int) -> list[int]:
    return list(ids) if len(ids) <= max_length else [*ids[:front], *ids[len(ids) - back :]]


def _ends(budget: int, strategy: str, head: int | float) -> tuple[int, int]:
    """Number of tokens a too long text keeps from its front and from its back."""
    if budget < 0:
        raise ValueError(f"max_length must be 0 or more, got {budget}.")
    if strategy == "head":
        return budget, 0
    if strategy == "tail":
        return 0, budget
    if strategy == "half":
        return budget // 2, budget // 2
    if strategy != "head_tail":
        raise ValueError(
            f"Unknown truncation strategy {strategy!r}.{did_you_mean(str(strategy), STRATEGIES)} "
            f"Known: {', '.join(STRATEGIES)}."
        )
    if isinstance(head, float):
        if not 0 < head < 1:
            raise ValueError(f"head as a share must be between 0 and 1, got {head}; whole tokens are an int.")
        head = int(head * budget)
    elif not 0 < head < budget:
        raise ValueError(
            f"head={head} leaves no room for a tail: {budget} content tokens are kept in all. Give a smaller "
            "head, a share such as head=0.25, or strategy='head'."
        )
    return head, budget - head


def _content_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    # verbose=False: texts longer than the model's limit are expected here, they are cut next.
    encoded = tokenizer(
        list(texts),
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    return encoded["input_ids"]


@dataclass(frozen=True)
class _Template:
    """The special tokens before, between and after the texts, and the token types of everything."""

    special: list[list[int]]
    types: tuple[list[list[int]], list[int]] | None  # of the special tokens, of each text

    def fill(self, sides: Sequence[list[int]]) -> list[int]:
        ids = list(self.special[0])
        for side, special in zip(sides, self.special[1:], strict=True):
            ids += side
            ids += special
        return ids

    def fill_types(self, sides: Sequence[list[int]]) -> list[int]:
        special, of_side = self.types
        filled = [[kind] * len(side) for kind, side in zip(of_side, sides, strict=True)]
        return _Template(special, None).fill(filled)


def _template(tokenizer: PreTrainedTokenizerBase, pair: bool) -> _Template:
    """Learn the template from one encoded example.

    Transformers 5 has no common method that adds special tokens to given ids: fast tokenizers lost
    `build_inputs_with_special_tokens` and `prepare_for_model`.
    """
    example = ["first", "second"] if pair else ["first"]
    encoded = tokenizer(*example)
    ids, types = encoded["input_ids"], encoded.get("token_type_ids")
    cuts = [0]
    for side in _content_ids(tokenizer, example):
        start = _find(ids, side, cuts[-1])
        if start is None:
            raise ValueError(
                f"Cannot tell which special tokens {type(tokenizer).__name__} adds: {example} becomes {ids}, "
                f"where the text's own tokens {side} do not appear."
            )
        cuts += [start, start + len(side)]
    gaps = list(zip(cuts[::2], [*cuts[1::2], len(ids)], strict=True))
    special = [ids[start:stop] for start, stop in gaps]
    if types is None:
        return _Template(special, None)
    return _Template(special, ([types[start:stop] for start, stop in gaps], [types[i] for i in cuts[1::2]]))


def _find(ids: list[int], part: list[int], start: int) -> int | None:
    places = range(start, len(ids) - len(part) + 1) if part else ()
    return next((i for i in places if ids[i : i + len(part)] == part), None)


def _content_budget(tokenizer: PreTrainedTokenizerBase, template: _Template, max_length: int) -> int:
    special = sum(map(len, template.special))
    if max_length > tokenizer.model_max_length:
        raise ValueError(
            f"max_length={max_length} is more than the {tokenizer.model_max_length} tokens this model reads "
            "(tokenizer.model_max_length); give a smaller max_length."
        )
    if max_length <= special:
        raise ValueError(
            f"max_length={max_length} leaves no room for text: this tokenizer adds {special} special tokens."
        )
    return max_length - special
