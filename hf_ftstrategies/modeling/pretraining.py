"""The model of further pre-training: which class, which of its heads are new, and its losses.

Everything here works on stock Transformers models and leaves their class and their `state_dict` as they are, so that
`save_pretrained` gives a checkpoint that `AutoModelForSequenceClassification` loads.

Paper: Devlin et al. 2019, section 3.1; Sun et al. 2019, section 5.4 (further pre-training).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import ModelOutput

from hf_ftstrategies.modeling.masked_positions import word_logits

_NEXT_SENTENCE_HEAD = "seq_relationship"  # of every class that takes next_sentence_label


@dataclass(frozen=True)
class LoadedHeads:
    """A model for further pre-training, and what is to be known about its heads.

    Args:
        model (`PreTrainedModel`): Stock, in evaluation mode.
        has_next_sentence (`bool`): Whether it is to be trained on next sentences, besides masked words.
        fresh (`tuple[str, ...]`): The parts that the checkpoint lacks, which were drawn at random, in words:
            `"MLM head (decoder tied to the embeddings)"`, `"next-sentence head"`, `"pooler"`. A part of which only
            some weights were lacking is followed by their names.
        dropped (`tuple[str, ...]`): The modules of the checkpoint that the model has not, by name, which a
            checkpoint of this model will not have either: `"classifier"`, `"pooler"`.
    """

    model: PreTrainedModel
    has_next_sentence: bool
    fresh: tuple[str, ...]
    dropped: tuple[str, ...]


def load_pretraining_model(path: str, next_sentence: bool | None = None, **options: Any) -> LoadedHeads:
    """Load an encoder with the head, or the heads, that it is pre-trained with.

    A type of model whose pre-training class takes `next_sentence_label` (BERT, MobileBERT, Megatron-BERT, ERNIE,
    BigBird, FNet) gets that class; any other its masked language model, ELECTRA thus its generator.

    With `next_sentence=False` a BERT still gets `BertForPreTraining`: `BertForMaskedLM` has no pooler, so a checkpoint
    of it has none, and the classifier that is fine-tuned next would start with a random one. Instead, pooler and
    next-sentence head keep their weights: they are frozen (`requires_grad` is False), because parameters that take
    part in the forward pass and never in the loss break distributed training. The other types whose masked language
    model lacks the pooler that their classifier reads (ALBERT, RemBERT) do lose it: see `LoadedHeads.dropped`.

    Args:
        path (`str`): Folder or Hub id. Code that comes with a checkpoint is not run.
        next_sentence (`bool`, *optional*): Train on next sentences? None: where the type of model has it.
        **options: Of `from_pretrained`, such as `revision` or `dtype`, or settings of its configuration.

    Returns:
        `LoadedHeads`: New weights follow torch's seed.

    Raises:
        ValueError: A type of model without a masked language model (GPT-2, Llama, T5); `next_sentence=True` for one
            without next sentences.
        OSError: There is no such model.
    """
    config = AutoConfig.from_pretrained(path, trust_remote_code=False, **options)
    model_class, takes_next_sentence = _pretraining_class(config, path)
    if next_sentence and not takes_next_sentence:
        raise ValueError(
            f"{path!r} is of type {config.model_type!r}, whose {model_class.__name__} has no next-sentence head: "
            "leave next_sentence out, or start from a BERT."
        )
    model, info = model_class.from_pretrained(path, output_loading_info=True, **options)
    if takes_next_sentence and next_sentence is False:
        for name, parameter in model.named_parameters():
            if _part_of(name, model) in ("pooler", "next-sentence head"):
                parameter.requires_grad_(False)
    missing = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    return LoadedHeads(
        model=model,
        has_next_sentence=takes_next_sentence and next_sentence is not False,
        fresh=_fresh_parts(model, missing),
        dropped=tuple(sorted({_inside(key, model).split(".")[0] for key in info["unexpected_keys"]})),
    )


def _pretraining_class(config: PreTrainedConfig, path: str) -> tuple[type[PreTrainedModel], bool]:
    """The class to load, and whether it takes next sentences."""
    if config.is_encoder_decoder or type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise ValueError(
            f"{path!r} is of type {config.model_type!r}, which is not pre-trained by predicting masked words, or not "
            "by an encoder alone: use an encoder such as BERT, RoBERTa or ModernBERT."
        )
    candidate = MODEL_FOR_PRETRAINING_MAPPING.get(type(config), None)
    if candidate is not None and "next_sentence_label" in inspect.signature(candidate.forward).parameters:
        return candidate, True
    return MODEL_FOR_MASKED_LM_MAPPING[type(config)], False


def _inside(name: str, model: PreTrainedModel) -> str:
    return name.removeprefix(f"{model.base_model_prefix}.")


def _part_of(name: str, model: PreTrainedModel) -> str:
    """The part of the model that a parameter belongs to, by its name."""
    if name.startswith(f"{model.base_model_prefix}."):
        return "pooler" if _inside(name, model).startswith("pooler.") else "encoder"
    return "next-sentence head" if _NEXT_SENTENCE_HEAD in name.split(".") else "MLM head"


def _fresh_parts(model: PreTrainedModel, missing: Iterable[str]) -> tuple[str, ...]:
    embeddings = model.get_input_embeddings().weight
    decoder = model.get_output_embeddings()
    tied = decoder is not None and decoder.weight is embeddings
    fresh = []
    for part in ("encoder", "pooler", "MLM head", "next-sentence head"):
        # the tied decoder is not the head's own, and never missing
        own = [
            name
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if _part_of(name, model) == part and (part == "encoder" or parameter is not embeddings)
        ]
        lacking = [name for name in own if name in missing]
        if lacking:
            words = f"{part} (decoder tied to the embeddings)" if part == "MLM head" and tied else part
            fresh.append(words if lacking == own else f"{words}: {', '.join(lacking)}")
    return tuple(fresh)


# --- Losses ---


class PretrainingLosses(NamedTuple):
    """Sums and counts, from which any mean is made: over micro-batches, over processes.

    Args:
        mlm_sum (`torch.Tensor`): Scalar float32, cross-entropy summed over the masked words, in nats.
        mlm_count (`torch.Tensor`): Scalar int64, how many these are.
        nsp_sum (`torch.Tensor`): Scalar float32, cross-entropy summed over the pairs; 0 without next sentences.
        nsp_count (`torch.Tensor`): Scalar int64, how many these are.
    """

    mlm_sum: torch.Tensor
    mlm_count: torch.Tensor
    nsp_sum: torch.Tensor
    nsp_count: torch.Tensor


def pretraining_losses(
    outputs: ModelOutput, labels: torch.Tensor, next_sentence_label: torch.Tensor | None = None
) -> PretrainingLosses:
    """Both losses of pre-training, as sums, with the counts to divide by.

    On one batch, Devlin et al.'s loss is `mlm_sum / mlm_count + nsp_sum / nsp_count`. The mean over several batches
    is not the mean of these, because the number of masked words differs: divide by the counts of all.

    Args:
        outputs (`ModelOutput`): Of a pre-training class (`prediction_logits`, `seq_relationship_logits`) or of a
            masked language model (`logits`).
        labels (`torch.Tensor`): (B, P) or (B, T), as the logits without their last dimension; -100 does not count.
        next_sentence_label (`torch.Tensor`, *optional*): (B,), 0: the second text follows the first, 1: it is a
            random one; -100 does not count. None: no such loss.

    Returns:
        `PretrainingLosses`: Computed in float32, on the device of the logits.

    Raises:
        ValueError: `next_sentence_label` for a model without a next-sentence head; logits that do not fit the labels.

    Paper: Devlin et al. 2019, appendix A.2: the sum of the mean MLM and the mean next-sentence likelihood.
    """
    mlm = _summed_cross_entropy(word_logits(outputs), labels)
    if next_sentence_label is None:
        zero = mlm[0].new_zeros(())
        return PretrainingLosses(*mlm, zero, zero.long())
    if "seq_relationship_logits" not in outputs:
        raise ValueError(
            f"The batch has next_sentence_label, but the model has no next-sentence head (it returns "
            f"{', '.join(outputs)}): leave the labels out, or use the pre-training class of a BERT."
        )
    return PretrainingLosses(*mlm, *_summed_cross_entropy(outputs["seq_relationship_logits"], next_sentence_label))


def _summed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"Labels of shape {tuple(labels.shape)} do not fit logits of shape {tuple(logits.shape)}: with "
            "masked_positions there is one label for each position, without them one for each token."
        )
    total = cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=-100, reduction="sum")
    return total, labels.ne(-100).sum()
