"""`TrainingArguments` with one flat, documented field per knob of the strategies."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import get_args, get_type_hints

from transformers import TrainingArguments

from hf_ftstrategies.optim.schedules import check_schedule
from hf_ftstrategies.strategies import make_strategies
from hf_ftstrategies.suggest import check_type, did_you_mean

_LARGEST = 1e9  # of steps, epochs and rates; more is a slip
_RANGES = {
    **dict.fromkeys(("learning_rate", "weight_decay", "warmup_steps", "num_train_epochs"), (0, _LARGEST)),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), (1, _LARGEST)),
    **dict.fromkeys(("gradient_accumulation_steps", "eval_accumulation_steps"), (1, _LARGEST)),
    **dict.fromkeys(("seed", "data_seed"), (0, 2**32 - 1)),
    "max_steps": (-1, _LARGEST),
    "neftune_noise_alpha": (0, _LARGEST),
    "label_smoothing_factor": (0, 1),
}


def _knob(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class StrategyTrainingArguments(TrainingArguments):
    """`transformers.TrainingArguments` plus the fields below; with their defaults nothing is different.

    Every field is read by one file: `strategies/<name>.py` says what it does exactly, and `optim/schedules.py`
    and `optim/bert_adam.py` for schedule and optimizer.

    Args:
        layer_decay (`float`, *optional*, defaults to 1.0): Factor of the learning rate from one layer to the
            next below; 1.0 = off. ULMFiT: 1 / 2.6; Sun et al. 2019: 0.95.
        layer_decay_style (`str`, *optional*, defaults to `"sun"`): `"sun"`, `"sun_code"` or `"zhang"`.
        head_learning_rate (`float`, *optional*): Rate of pooler and head instead of `learning_rate`.
        lr_schedule (`str`, *optional*): `"slanted_triangular"`, `"bert_linear"`, or None (also `"none"`) for
            Trainer's own.
        stlr_cut_fraction (`float`, *optional*, defaults to 0.1): Fraction of training in which the slanted
            triangular rate rises.
        stlr_ratio (`float`, *optional*, defaults to 32): Peak over lowest slanted triangular rate.
        unfreezing (`str`, *optional*, defaults to `"none"`): `"none"`, `"gradual"`, `"ulmfit"`, `"chain_thaw"`,
            `"last"`, `"head"`, or the path of a YAML schedule.
        unfreeze_every (`str`, *optional*, defaults to `"epoch"`): `"epoch"`, optimizer steps, or a fraction of
            the training below 1.
        frozen_in_eval_mode (`bool`, *optional*, defaults to `False`): No dropout in wholly frozen modules.
        bias_correction (`bool`, *optional*, defaults to `True`): False = BERTAdam.
        max_grad_norm_per_tensor (`float`, *optional*): BERTAdam clips each tensor's gradient to this norm;
            set `max_grad_norm=0` with it.
        reinit_layers (`int`, *optional*, defaults to 0): Top blocks to re-initialise, with the pooler.
        reinit_pooler (`bool`, *optional*): Re-initialise the pooler; None = together with any block.
        mixout (`float`, *optional*, defaults to 0.0): Share of the starting weights that every linear layer is mixed
            with in training, below 1; 0.0 = off.
        mixout_mask (`str`, *optional*, defaults to `"column"`): Mix whole `"column"`s or each `"parameter"` alone.
        mixout_head (`bool`, *optional*, defaults to `True`): Mix the head too, towards its initial values.
        mixout_keep_dropout (`bool`, *optional*, defaults to `False`): Leave dropout on beside mixout.
        pretrained_weight_decay (`float`, *optional*, defaults to 0.0): Decay towards the starting weights, as a
            factor of the learning rate; 0.0 = off. `weight_decay` then acts on the head alone.
        pretrained_weight_decay_head (`bool`, *optional*, defaults to `False`): The head decays to its start too.
        log_layer_distance (`bool`, *optional*, defaults to `False`): Log how far and how fast each layer moves.
        self_distillation (`str`, *optional*, defaults to `"none"`): `"none"`, `"sda"`, `"sdv"` or `"ema"`.
        teacher_size (`int`, *optional*, defaults to 1): Earlier students in the teacher of `"sda"` and `"sdv"`.
        distillation_weight (`float`, *optional*, defaults to 1.0): Of the distillation in the loss.
        self_ensemble (`str`, *optional*, defaults to `"none"`): `"none"`, `"se"`, `"ema"`, `"last_k"` or
            `"best_k"`.
        ensemble_size (`int`, *optional*, defaults to 10): Students of `"last_k"` and `"best_k"`.
        ensemble_start (`float`, *optional*, defaults to 0): Steps before the ensemble's first student, or a
            fraction of the training below 1.
        copy_storage (`str`, *optional*, defaults to `"device"`): Where the copies of sda, sdv, last_k, best_k and
            pretrained_weight_decay are: `"device"`, `"host"` (pinned) or `"bfloat16"` (half the bytes).
        evaluations (`int`, *optional*): Evenly spaced evaluations (and checkpoints) over the training.
        early_stopping_patience (`int`, *optional*): Evaluations without improvement of
            `metric_for_best_model` that end the training.

    Raises:
        ValueError: an unknown field, or a value that its strategy does not take.
    """

    layer_decay: float = _knob(
        1.0, "Factor of the learning rate per layer below; 1.0 = off (Howard & Ruder 2018; Sun et al. 2019)."
    )
    layer_decay_style: str = _knob(
        "sun", "sun, sun_code or zhang: which exponent each layer gets (Sun et al. 2019; Zhang et al. 2021)."
    )
    head_learning_rate: float | None = _knob(None, "Learning rate of pooler and head (Zhang et al. 2021).")
    lr_schedule: str | None = _knob(
        None,
        "slanted_triangular (Howard & Ruder 2018), bert_linear (Devlin et al. 2018), or none for Trainer's own.",
    )
    stlr_cut_fraction: float = _knob(0.1, "Fraction of training in which the slanted triangular rate rises.")
    stlr_ratio: float = _knob(32, "Peak over lowest slanted triangular rate.")
    unfreezing: str = _knob(
        "none",
        "none, gradual, ulmfit, chain_thaw, last, head, or the path of a YAML schedule (Howard & Ruder 2018).",
    )
    unfreeze_every: str = _knob("epoch", "epoch, optimizer steps, or a fraction of training below 1.")
    frozen_in_eval_mode: bool = _knob(False, "No dropout in wholly frozen modules.")
    bias_correction: bool = _knob(True, "False = BERTAdam (Devlin et al. 2018; Zhang et al. 2021).")
    max_grad_norm_per_tensor: float | None = _knob(
        None, "BERTAdam clips each tensor's gradient to this norm (code of Sun et al. 2019)."
    )
    reinit_layers: int = _knob(0, "Top blocks to re-initialise, with the pooler (Zhang et al. 2021).")
    reinit_pooler: bool | None = _knob(None, "Re-initialise the pooler; empty = together with any block.")
    mixout: float = _knob(
        0.0, "Share of the starting weights that linear layers are mixed with; 0.0 = off (Lee et al. 2020)."
    )
    mixout_mask: str = _knob("column", "column or parameter: what mixout draws at once.")
    mixout_head: bool = _knob(True, "Mix the head too, towards its initial values.")
    mixout_keep_dropout: bool = _knob(False, "Leave dropout on beside mixout.")
    pretrained_weight_decay: float = _knob(
        0.0, "Decay towards the starting weights, as a factor of the rate; 0.0 = off (Zhang et al. 2021)."
    )
    pretrained_weight_decay_head: bool = _knob(False, "The head decays to its starting weights too.")
    log_layer_distance: bool = _knob(False, "Log how far and how fast each layer moves (Zhang et al. 2021).")
    self_distillation: str = _knob(
        "none", "none, sda, sdv or ema: learn also from a teacher made of earlier students (Xu et al. 2020)."
    )
    teacher_size: int = _knob(1, "Earlier students in the teacher of sda and sdv (Xu et al. 2020).")
    distillation_weight: float = _knob(1.0, "Weight of the distillation in the loss (Xu et al. 2020).")
    self_ensemble: str = _knob(
        "none", "none, se, ema, last_k or best_k: keep an average of students, evaluated beside them (Xu et al. 2020)."
    )
    ensemble_size: int = _knob(10, "Students in the average of last_k or best_k.")
    ensemble_start: float = _knob(0.0, "Steps before the ensemble's first student, or a fraction of training below 1.")
    copy_storage: str = _knob("device", "device, host or bfloat16: where strategies keep copies of the weights.")
    evaluations: int | None = _knob(None, "Evenly spaced evaluations over the training (Zhang et al. 2021: 10).")
    early_stopping_patience: int | None = _knob(None, "Evaluations without improvement that end the training.")

    def __new__(cls, *args, **kwargs):
        """Tell the nearest field for an unknown one; a dataclass alone would only raise TypeError."""
        known = [f.name for f in fields(cls)]
        for name in kwargs:
            if name not in known:
                raise ValueError(f"{name!r} is no field of {cls.__name__}.{did_you_mean(name, known)}")
        return super().__new__(cls)

    def __post_init__(self):
        self._check_types()
        self._check_numbers()
        if self.lr_schedule == "none":  # how a command line takes a preset back
            self.lr_schedule = None
        if self.evaluations is not None:
            self._evaluate_evenly()
        make_strategies(self)
        super().__post_init__()
        check_schedule(self)
        self._check_optimizer()

    def _check_types(self) -> None:
        """Values of our own fields must be of their types; from files they often come as text."""
        hints = get_type_hints(StrategyTrainingArguments)
        inherited = {f.name for f in fields(TrainingArguments)}
        for own in fields(StrategyTrainingArguments):
            if own.name in inherited or own.name == "unfreeze_every":  # read by parse_every
                continue
            types = get_args(hints[own.name]) or (hints[own.name],)
            check_type(own.name, getattr(self, own.name), *types)

    def _check_numbers(self) -> None:
        """What Trainer would meet much later, as a division by zero or a loss that is not a number."""
        for name, (lowest, highest) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value <= highest:  # nan too
                raise ValueError(f"{name} is {value}: give a number from {lowest:g} to {highest:g}.")

    def _evaluate_evenly(self) -> None:
        """Make Trainer evaluate and save by steps; `EvenEvaluations` then says at which."""
        if str(self.eval_strategy) not in ("no", "steps", "IntervalStrategy.NO", "IntervalStrategy.STEPS"):
            raise ValueError(
                f"evaluations={self.evaluations} spaces the evaluations evenly, eval_strategy="
                f"{self.eval_strategy!r} places them elsewhere: give only one of them."
            )
        self.eval_strategy = "steps"
        self.eval_steps = self.save_steps = min(0.5, 1 / max(1, self.evaluations))

    def _check_optimizer(self) -> None:
        if not self.bias_correction and self.optim not in ("adamw_torch", "adamw_torch_fused"):
            raise ValueError(
                f"bias_correction=False is AdamW without bias correction, but optim is {str(self.optim.value)!r}: "
                "leave optim at adamw_torch_fused or adamw_torch."
            )
        if self.max_grad_norm_per_tensor is None:
            return
        if self.bias_correction:
            raise ValueError("max_grad_norm_per_tensor belongs to BERTAdam: set bias_correction=False with it.")
        if not self.max_grad_norm_per_tensor > 0:  # nan too
            raise ValueError(f"max_grad_norm_per_tensor is {self.max_grad_norm_per_tensor}: give a positive norm.")
        if self.max_grad_norm:
            raise ValueError(
                f"max_grad_norm_per_tensor is {self.max_grad_norm_per_tensor} and max_grad_norm {self.max_grad_norm}"
                ": the gradients would be clipped twice. Set max_grad_norm=0."
            )
