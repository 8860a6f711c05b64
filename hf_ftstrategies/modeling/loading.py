"""Models and tokenizers that cannot be used: why, and what to do, before anything is trained."""

from __future__ import annotations

from textwrap import shorten

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

_POSITIONS = ("position_embeddings", "wpe")  # learned absolute positions, as Transformers calls them


def explain_load_error(error: Exception) -> str:
    """Why `from_pretrained` failed, in one line.

    Args:
        error (`Exception`): What it raised.
    """
    kind, text = type(error).__name__, str(error)
    if "trust_remote_code" in text:
        return (
            "it brings code of its own, which is not run. Read that code; if you trust it, give "
            "--trust_remote_code True."
        )
    if "each task has its own" in text or "'multitask_classifier'" in text:
        return "it is a multi-task model. Start from the folder 'encoder' in it, or save what its for_task(name) gives."
    if "ignore_mismatched_sizes" in text:
        return (
            "its weights have other shapes than are needed. If its head was trained for other labels, save its encoder "
            "alone (AutoModel) and start from that; else config.json is of another model."
        )
    if kind == "UnpicklingError":
        return "its weights are a pickle that holds more than weights, which is not run. Save it as model.safetensors."
    if isinstance(error, OSError):
        return text.partition("\n")[0]  # advice follows that is not for a command line
    text = shorten(text, 300)
    if kind in ("SafetensorError", "JSONDecodeError"):
        part = "weights" if kind == "SafetensorError" else "JSON files"
        return f"its {part} are damaged ({text}). Copy or download it again."
    return text if type(error) is ValueError else f"{kind}: {text}"


def check_fit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Refuse a tokenizer that does not fit the model, and texts longer than the model reads.

    Without this, both end the training in an index error, or go unnoticed where rare tokens and long texts are in
    the test set alone.

    Args:
        model (`PreTrainedModel`): With its embeddings.
        tokenizer (`PreTrainedTokenizerBase`): That makes its inputs.
        max_length (`int`): Tokens of the longest input.

    Raises:
        ValueError: no vocabulary, no padding token, more tokens than the model embeds, or fewer positions than
            `max_length`.
    """
    name = model.config.name_or_path
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what Transformers makes up where there are no files
        raise ValueError(
            f"The tokenizer of {name!r} has no vocabulary: put tokenizer.json or vocab.txt beside the model."
        )
    if tokenizer.pad_token_id is None:
        raise ValueError(
            f"The tokenizer of {name!r} has no padding token: set tokenizer.pad_token (often to tokenizer.eos_token) "
            "and save the tokenizer beside the model."
        )
    embedded = _count_embeddings(model)
    if embedded is not None and len(tokenizer) > embedded:
        raise ValueError(
            f"The tokenizer of {name!r} has {len(tokenizer)} tokens, the model embeds {embedded}: "
            "it is the tokenizer of another model, or tokens were added to it without model.resize_token_embeddings."
        )
    positions = count_positions(model)
    if positions is not None and max_length > positions:
        raise ValueError(
            f"max_length is {max_length}, but the model has {positions} positions: set it to at most that."
        )


def count_positions(model: PreTrainedModel) -> int | None:
    """How many tokens a model with learned absolute positions reads; None for other models.

    RoBERTa and its like count from the padding index on, so that a table of 514 rows is for 512 tokens.

    Args:
        model (`PreTrainedModel`): Any.
    """
    tables = [
        module
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in _POSITIONS and isinstance(module, nn.Embedding)
    ]
    if not tables:
        return None
    return min(t.num_embeddings - (0 if t.padding_idx is None else t.padding_idx + 1) for t in tables)


def _count_embeddings(model: PreTrainedModel) -> int | None:
    try:
        embeddings = model.get_input_embeddings()
    except NotImplementedError:  # CANINE, which hashes characters
        return None
    return embeddings.num_embeddings if isinstance(embeddings, nn.Embedding) else None
