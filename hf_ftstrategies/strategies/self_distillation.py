"""Self-distillation: the student learns also from what it was a few steps ago."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.flat_parameters import check_copyable, check_storage
from hf_ftstrategies.optim.parameter_averages import MovingAverage, ParameterWindow, WindowMean, ema_weight
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type, did_you_mean

MODES = ("sda", "sdv", "ema")


class SelfDistillation(Strategy):
    """Add to the loss how far the student's logits are from those of a teacher made of earlier students.

    loss = task loss + `weight` · mean squared error(student's logits, teacher's logits)

    The teacher sees the same batch, in evaluation mode and without gradients; the model that is evaluated and saved
    is the student. Students are the parameters after each of the last `teacher_size` optimizer steps, the present
    ones included, the initial ones first; as long as there are fewer, those there are. So with `teacher_size=1` the
    teacher is the present student without dropout, in both modes, and nothing is copied. Under gradient
    accumulation the teacher stays the same within a step; a step that mixed precision skips makes no student.
    Parameters are copied from the step on in which they first train; those that never do are shared.

    The error is the mean over examples and classes; for token classification over the tokens that have a label and
    are no padding, for question answering over start and end logits of all tokens but padding. It is logged as
    `teacher_student_gap`, before weighting. Memory: `teacher_size` + 1 copies of the parameters that train, + 2 above
    a size of 10 (`"sdv"`: `teacher_size`; `"ema"`: 1); every checkpoint has them too, in `strategies.safetensors`.

    Args:
        mode (`str`, *optional*, defaults to `"sda"`): `"sda"`: the teacher has the mean of the students' parameters;
            `"sdv"`: its logits are the mean of the students' logits, one more forward for each; `"ema"`: its
            parameters are an exponential moving average of decay min(0.995, (1 + n) / (10 + n)) after step n.
        teacher_size (`int`, *optional*, defaults to 1): Number of students in the teacher of `"sda"` and `"sdv"`.
        weight (`float`, *optional*, defaults to 1.0): Of the error in the loss.
        storage (`str`, *optional*, defaults to `"device"`): Where the students of `"sda"` and `"sdv"` are kept: like
            the parameters; `"host"`: in pinned main memory; `"bfloat16"`: in half the bytes, rounded to 8 bits. The
            mean of `"sda"` is always like the parameters.

    Raises:
        ValueError: an unknown mode, a size or weight that makes no sense; FSDP, DeepSpeed, parameters in half
            precision; at the first step, a model without logits.

    Paper: Xu et al. 2020, "Improving BERT Fine-Tuning via Self-Ensemble and Self-Distillation"
    (arXiv 2002.10345), BERT-SDA and BERT-SDV.

    Differs: `"ema"` is not in the paper; it is what the public implementation lonePatient/BERT-SDA does in its place.
    """

    name = "self_distillation"
    paper = "Xu et al. 2020 (arXiv 2002.10345), self-distillation"

    def __init__(self, mode: str = "sda", teacher_size: int = 1, weight: float = 1.0, storage: str = "device"):
        check_type("self_distillation", mode, str)
        check_type("teacher_size", teacher_size, int)
        check_type("distillation_weight", weight, float)
        if mode not in MODES:
            raise ValueError(
                f"self_distillation is {mode!r}, known are none, {', '.join(MODES)}.{did_you_mean(mode, MODES)}"
            )
        if teacher_size < 1:
            raise ValueError(f"teacher_size is {teacher_size}: a teacher is made of at least 1 student.")
        if mode == "ema" and teacher_size != 1:
            raise ValueError(
                f"teacher_size is {teacher_size}, but self_distillation='ema' has no window: leave it out, or use sda."
            )
        if not 0 <= weight < float("inf"):
            raise ValueError(f"distillation_weight is {weight}: give 0 or a positive number.")
        check_storage(storage)
        self.mode = mode
        self.teacher_size = teacher_size
        self.weight = weight
        self.storage = storage
        self._model: nn.Module | None = None
        self._parameters: dict[str, nn.Parameter] = {}
        self._students: ParameterWindow | MovingAverage | None = None
        self._loaded: dict[str, Any] = {}
        self._gaps, self._gap_sum = 0, torch.zeros(())

    @classmethod
    def from_args(cls, args):
        """On with `self_distillation` other than `"none"`."""
        if args.self_distillation == "none":
            return None
        return cls(args.self_distillation, args.teacher_size, args.distillation_weight, args.copy_storage)

    def check(self, args, layer_map: LayerMap) -> None:
        """The parameters must be such that they can be copied."""
        check_copyable(args, layer_map, f"self_distillation={self.mode!r}")

    # --- Training ---

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Begin with the present parameters, or with the students of the checkpoint."""
        super().on_train_begin(args, state, control, model=model, **kwargs)
        self._model, self._parameters = model, dict(model.named_parameters())
        self._students = self._no_students()
        if self._students is not None and state.global_step > 0:
            self._students.load_state_dict(self._loaded, self._parameters)
        self._loaded = {}

    def _no_students(self) -> ParameterWindow | MovingAverage | None:
        if self.mode == "ema":
            return MovingAverage(ema_weight)
        if self.teacher_size == 1:
            return None
        window = WindowMean if self.mode == "sda" else ParameterWindow
        return window(self.teacher_size, with_initial=True, storage=self.storage)

    def loss_term(self, model, inputs, outputs) -> torch.Tensor:
        """The weighted error on this micro-batch."""
        student = read_logits(outputs)
        unlabelled = {name: value for name, value in inputs.items() if not _is_label(name)}
        copies = [{}] if self._students is None else self._students.copies()
        with torch.no_grad(), _in_eval_mode(self._model):
            # the inner model, not its DDP wrapper; what is not in the copy is shared
            answers = [read_logits(functional_call(self._model, copy, kwargs=unlabelled)) for copy in copies]
        teacher = answers[0] if len(answers) == 1 else torch.stack(answers).mean(0)
        gap = mean_squared_error(student, teacher, _counted_tokens(student, inputs))
        self._gaps, self._gap_sum = self._gaps + 1, self._gap_sum.to(gap.device) + gap.detach()
        return self.weight * gap

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """What trains in this step joins, if it is not there yet, before it moves."""
        if self._students is not None:
            self._students.include({n: p for n, p in self._parameters.items() if p.requires_grad})

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """The step made a new student, unless mixed precision skipped it."""
        if self._students is not None and not optimizer.step_was_skipped:
            self._students.update()

    def on_train_end(self, args, state, control, **kwargs):
        """Give the memory back."""
        self._model, self._parameters, self._students, self._gaps = None, {}, None, 0

    def training_logs(self, step: int) -> dict[str, torch.Tensor]:
        """The error since the last log."""
        logs = {"teacher_student_gap": self._gap_sum / self._gaps} if self._gaps else {}
        self._gaps, self._gap_sum = 0, torch.zeros_like(self._gap_sum)
        return logs

    # --- State ---

    def state_dict(self) -> dict[str, Any]:
        """The students, or the moving average."""
        return {} if self._students is None else self._students.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep them for `on_train_begin`, when the parameters are where they stay."""
        self._loaded = state

    def settings(self):
        """As given."""
        stored = {} if self.storage == "device" else {"storage": self.storage}
        return {"mode": self.mode, "teacher_size": self.teacher_size, "weight": self.weight, **stored}

    def summary(self) -> str:
        """For people."""
        students = f"{self.teacher_size} student{'s' * (self.teacher_size != 1)}"
        made_of = {"sda": f"mean of {students}", "sdv": f"vote of {students}", "ema": "moving average"}[self.mode]
        return f"self-distillation from the {made_of}, weight {self.weight:g}"


def read_logits(outputs: Any) -> torch.Tensor:
    """The logits of a model's output.

    Args:
        outputs (`ModelOutput` or `Mapping`): With `logits`, or with `start_logits` and `end_logits`.

    Returns:
        `torch.Tensor`: (examples, classes), or (examples, tokens, classes): start and end are two classes.

    Raises:
        ValueError: it has none of them.
    """
    found = outputs if isinstance(outputs, Mapping) else {}
    if "start_logits" in found and "end_logits" in found:
        return torch.stack([found["start_logits"], found["end_logits"]], dim=-1)
    logits = found.get("logits")
    if not isinstance(logits, torch.Tensor) or logits.dim() not in (2, 3):
        known = ", ".join(found) or type(outputs).__name__
        raise ValueError(
            f"self_distillation compares logits, (examples, classes) or (examples, tokens, classes); the model returns "
            f"{known}. It works with sequence and token classification and with question answering."
        )
    return logits


def mean_squared_error(student: torch.Tensor, teacher: torch.Tensor, counted: torch.Tensor | None) -> torch.Tensor:
    """The mean of the squared differences, in the student's type.

    Args:
        student (`torch.Tensor`), teacher (`torch.Tensor`): Logits of the same shape.
        counted (`torch.Tensor`, *optional*): (examples, tokens) booleans; the others are left out.
    """
    squares = (student - teacher).square().mean(-1)
    if counted is None:
        return squares.mean()
    return squares.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)


def _counted_tokens(logits: torch.Tensor, inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """Tokens with a label that are no padding; None where the logits are not of tokens."""
    if logits.dim() == 2:
        return None
    counted = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
    mask, labels = inputs.get("attention_mask"), inputs.get("labels")
    if mask is not None and mask.shape == counted.shape:
        counted &= mask.bool()
    if labels is not None and labels.shape == counted.shape:
        counted &= labels.ne(-100)
    return counted


def _is_label(name: str) -> bool:
    """Names that Transformers' models give to labels."""
    return "label" in name or name in ("start_positions", "end_positions")


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """No dropout; each module gets its own mode back, frozen ones may have been in eval mode already."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
