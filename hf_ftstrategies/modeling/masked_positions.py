"""Logits at the masked positions only: a stock model whose MLM head skips the tokens that nobody asks about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput


@dataclass(frozen=True)
class MaskedOnlyHandle:
    """What [`predict_masked_only`] changed in a model.

    Args:
        handles (`tuple[RemovableHandle, ...]`): Of its hooks.
    """

    handles: tuple[RemovableHandle, ...]

    def remove(self) -> None:
        """Take the hooks out again."""
        for handle in self.handles:
            handle.remove()


def predict_masked_only(model: PreTrainedModel) -> MaskedOnlyHandle:
    """Let a model take `masked_positions`, and predict the words at these positions only.

    With B texts of T tokens and at most P masked ones in each, `model(..., masked_positions=...)` returns logits of
    (B, P, vocabulary) instead of (B, T, vocabulary), and takes `labels` of (B, P): the last hidden state of the
    encoder is gathered before the MLM head. The values and the gradients are those of the full computation; the head,
    with its large product with the vocabulary, runs on about 15 % of the tokens. Pooler, next-sentence head,
    `hidden_states` and `attentions` are untouched, and without `masked_positions` so is everything.

    `masked_positions` is an int64 tensor (B, P); where a text has fewer, any position (0) with the label -100. It is no
    argument of `forward`: Trainer drops a column of that name unless `remove_unused_columns=False`, but not what a
    data collator makes.

    The model gets hooks, which work inside any wrapper (DDP, autocast, `torch.compile`); copies of the model have them
    too, independent of the original's. Nothing is saved with the model.

    Args:
        model (`PreTrainedModel`): Of a class with a masked language model, such as [`load_pretraining_model`] loads,
            not wrapped.

    Returns:
        `MaskedOnlyHandle`: To remove it.

    Raises:
        ValueError: No Transformers model, no encoder inside it, or a ModernBERT with `sparse_prediction`. In `forward`:
            positions that are not int64 of shape (B, P); a model that runs its encoder twice, or that does not make
            its logits of the last hidden state token by token (Perceiver).

    Paper: Devlin et al. 2019 (as their code, `gather_indexes` in `run_pretraining.py`).
    """
    if not isinstance(model, PreTrainedModel) or model.base_model is model:
        raise ValueError(
            f"Masked positions need a Transformers model with an encoder (base_model) below its MLM head, not "
            f"{type(model).__name__}: give one of load_pretraining_model, before it is wrapped."
        )
    if getattr(model, "sparse_prediction", False):
        raise ValueError(
            f"{type(model).__name__} with sparse_prediction=True already leaves out tokens without a label, and loses "
            "the rows of the batch: load it with sparse_prediction=False."
        )
    return MaskedOnlyHandle(
        (
            model.register_forward_pre_hook(_hand_positions_to_encoder, with_kwargs=True),
            model.base_model.register_forward_hook(_gather_masked),
            model.register_forward_hook(_forget_positions, always_call=True),
        )
    )


# The hooks keep the positions on the encoder during a call, never in a closure: whichever copy or replica of the
# model runs finds its own. Once they are used, only their shape is left there.


def _hand_positions_to_encoder(model: PreTrainedModel, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict]:
    positions = kwargs.get("masked_positions")
    if positions is not None:
        model.base_model._masked_positions = positions
    return args, {name: value for name, value in kwargs.items() if name != "masked_positions"}


def _gather_masked(encoder: nn.Module, args: tuple, output: ModelOutput | tuple) -> ModelOutput | tuple:
    positions = getattr(encoder, "_masked_positions", None)
    if positions is None:
        return output
    if isinstance(positions, torch.Size):
        raise ValueError(f"{type(encoder).__name__} runs twice in one forward pass: masked_positions do not fit it.")
    hidden = output[0]
    if positions.dtype != torch.int64 or hidden.dim() != 3 or positions.shape[:-1] != hidden.shape[:1]:
        raise ValueError(
            f"masked_positions must be int64 of shape (texts, positions) for a last hidden state (texts, tokens, "
            f"size), got {positions.dtype} {tuple(positions.shape)} for {tuple(hidden.shape)}."
        )
    encoder._masked_positions = positions.shape
    gathered = torch.take_along_dim(hidden, positions.unsqueeze(-1), dim=1)
    if isinstance(output, tuple):
        return (gathered, *output[1:])
    return replace(output, last_hidden_state=gathered)


def _forget_positions(model: PreTrainedModel, args: tuple, output: ModelOutput | tuple | None) -> None:
    left = model.base_model.__dict__.pop("_masked_positions", None)
    if left is None or not isinstance(output, ModelOutput):  # None: forward raised an error of its own
        return
    unused = isinstance(left, torch.Tensor)
    shape = left.shape if unused else left
    logits = word_logits(output)
    if unused or logits.shape[:-1] != shape:
        raise ValueError(
            f"masked_positions of shape {tuple(shape)} do not fit {type(model).__name__}, which returned logits of "
            f"shape {tuple(logits.shape)}: its head does not predict each word from the encoder's last hidden state "
            "at that position."
        )


def word_logits(outputs: ModelOutput) -> torch.Tensor:
    """The logits of the words, `prediction_logits` of pre-training classes, else `logits`."""
    return outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
