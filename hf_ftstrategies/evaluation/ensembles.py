"""Several trained models as one: their votes together, or one model with the mean of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

import hf_ftstrategies

# What may differ between the configurations of models that are averaged.
_ASIDE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")


def vote(logits: Sequence[np.ndarray], label_kind: str = "class") -> np.ndarray:
    """Let models vote: the mean of their probabilities, or of their numbers.

    Args:
        logits (`Sequence[np.ndarray]`): (examples, outputs) of each model, on the same examples in the same order.
        label_kind (`str`, *optional*, defaults to `"class"`): As of a task type: `"class"` (softmax), `"classes"`
            (sigmoid of each), `"number"` (no probabilities: the mean of the numbers).

    Returns:
        `np.ndarray`: (examples, outputs) logits of the mean probabilities in float64, so that whatever makes
        predictions of a model's logits makes them of these.

    Raises:
        ValueError: no model, different shapes, an unknown kind.

    Paper: Xu et al. 2020 (arXiv 2002.10345), voted BERT.
    """
    if label_kind not in ("class", "classes", "number"):
        raise ValueError(f"label_kind is {label_kind!r}, known are class, classes and number.")
    shapes = [np.shape(one) for one in logits]
    if not shapes or len(set(shapes)) > 1 or len(shapes[0]) != 2:
        raise ValueError(f"A vote needs logits (examples, outputs), the same shape of each model; got {shapes}.")
    stacked = np.stack([np.asarray(one, dtype=np.float64) for one in logits])
    if label_kind == "number":
        return stacked.mean(0)
    if label_kind == "class":
        return _log_mean_exp(stacked - np.logaddexp.reduce(stacked, -1, keepdims=True))
    yes, no = -np.logaddexp(0, -stacked), -np.logaddexp(0, stacked)  # logarithms of the sigmoid and its complement
    return _log_mean_exp(yes) - _log_mean_exp(no)


def _log_mean_exp(stacked: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(stacked, 0) - np.log(len(stacked))


def average_models(folders: Sequence[str | Path]) -> PreTrainedModel:
    """One model with the mean of the parameters of several: of runs from the same start, or checkpoints of one.

    Args:
        folders (`Sequence[str | Path]`): Models of the same class and configuration, as `save_pretrained` leaves
            them.

    Returns:
        `PreTrainedModel`: In evaluation mode; summed in float64, in the type of the first.

    Raises:
        ValueError: fewer than two; a folder without a model; classes, configurations (labels in another order too),
            shapes or running statistics that differ, with the difference.

    Paper: Xu et al. 2020 (arXiv 2002.10345), averaged BERT.
    """
    if len(folders) < 2:
        raise ValueError(f"An average needs at least 2 models, got {len(folders)}.")
    configs = [_load_config(folder) for folder in folders]
    for folder, config in zip(folders, configs):
        _check_alike(configs[0], config, folders[0], folder)
    model = _load_model(folders[0], configs[0])
    sums = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    for folder, config in zip(folders[1:], configs[1:]):
        other = _load_model(folder, config)
        _check_buffers(model, other, folder)
        for name, parameter in other.named_parameters():
            if parameter.shape != sums[name].shape:
                raise ValueError(
                    f"{name!r} has the shape {tuple(sums[name].shape)} in {str(folders[0])!r} and "
                    f"{tuple(parameter.shape)} in {str(folder)!r}: these models cannot be averaged."
                )
            sums[name] += parameter.detach()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(sums[name] / len(folders))
    return model


def load_trained(folder: str | Path) -> PreTrainedModel:
    """Load a trained model with the class that it was saved from.

    Args:
        folder (`str` or `Path`): As `save_pretrained` leaves it.

    Raises:
        ValueError: no model there, or of a class that neither Transformers nor this package has.
    """
    return _load_model(folder, _load_config(folder))


def _load_config(folder: str | Path) -> PreTrainedConfig:
    if not Path(folder, "config.json").is_file():
        raise ValueError(f"{str(folder)!r} holds no model: there is no config.json in it.")
    return AutoConfig.from_pretrained(folder)


def _load_model(folder: str | Path, config: PreTrainedConfig) -> PreTrainedModel:
    name = next(iter(config.architectures or ()), "")
    cls = getattr(hf_ftstrategies if name in hf_ftstrategies.__all__ else transformers, name, None)
    if cls is None:
        raise ValueError(f"{str(folder)!r} holds a model of class {name!r}, which Transformers does not have.")
    try:
        return cls.from_pretrained(folder)
    except OSError as error:
        raise ValueError(f"The model {str(folder)!r} cannot be loaded: {str(error).splitlines()[0]}") from error


def _check_alike(first: PreTrainedConfig, other: PreTrainedConfig, *folders: str | Path) -> None:
    a, b = ({k: v for k, v in config.to_dict().items() if k not in _ASIDE} for config in (first, other))
    differing = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    if differing:
        shown = "\n  ".join(f"{key}: {_short(a.get(key))} and {_short(b.get(key))}" for key in differing)
        raise ValueError(
            f"{str(folders[0])!r} and {str(folders[1])!r} cannot be averaged, their configurations differ:\n  {shown}"
        )


def _short(value: Any) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _check_buffers(model: PreTrainedModel, other: PreTrainedModel, folder: str | Path) -> None:
    buffers = dict(other.named_buffers())
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise ValueError(
                f"{name!r} of {str(folder)!r} is no parameter and differs from the first model's: statistics of the "
                "data (batch normalisation) do not belong to averaged parameters."
            )
