"""Self-ensemble: keep an average of the students beside the student, and evaluate both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.flat_parameters import check_copyable, check_storage
from hf_ftstrategies.optim.parameter_averages import BestMean, MovingAverage, WindowMean, ema_weight, mean_weight
from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.strategies.state_files import load_states
from hf_ftstrategies.suggest import check_type, did_you_mean

MODES = ("se", "ema", "last_k", "best_k")


class SelfEnsemble(Strategy):
    """Average the parameters after the optimizer steps of one training; the training itself is not touched.

    Every evaluation in training measures both: the student as `eval_accuracy`, the average as
    `eval_ensemble_accuracy` (of several evaluation sets, `eval_NAME_ensemble_accuracy`). Every checkpoint holds both:
    the student in `model.safetensors`, the average in `strategies.safetensors`.

    At the end the model has the weights of the average; with `load_best_model_at_end`, those of the best checkpoint
    by `metric_for_best_model`: the average's for a metric of the average (`"ensemble_accuracy"`), the student's for
    any other. `final_weights` then says which.

    Args:
        mode (`str`, *optional*, defaults to `"se"`): `"se"`: the mean of all students; `"last_k"`: of the last
            `size`, or of those there are; `"best_k"`: of the `size` that evaluated best so far, by the student's
            `metric_for_best_model` (the loss if there is none); `"ema"`: an exponential moving average of decay
            min(0.995, (1 + n) / (10 + n)) after its n-th step.
        size (`int`, *optional*, defaults to 10): Students of `"last_k"` and `"best_k"`; that many copies are kept.
        start (`float`, *optional*, defaults to 0): Steps whose students do not count; below 1, a fraction of the
            training. Until then the average is the student.
        storage (`str`, *optional*, defaults to `"device"`): Where these copies are, as of `SelfDistillation`; their
            average is always like the parameters.

    Attributes:
        final_weights (`str`, *optional*): `"student"` or `"ensemble"`, once the model has its final weights.

    Raises:
        ValueError: an unknown mode, a size or start that makes no sense; a model with batch normalisation, whose
            running statistics do not belong to averaged weights; `"best_k"` without evaluations; FSDP, DeepSpeed,
            parameters in half precision.

    Paper: Xu et al. 2020, "Improving BERT Fine-Tuning via Self-Ensemble and Self-Distillation"
    (arXiv 2002.10345), BERT-SE.

    Differs: `"last_k"` is the teacher of their self-distillation used as the model; `"ema"` and `"best_k"` are not in
    the paper.
    """

    name = "self_ensemble"
    paper = "Xu et al. 2020 (arXiv 2002.10345), self-ensemble"

    def __init__(self, mode: str = "se", size: int = 10, start: float = 0, storage: str = "device"):
        check_type("self_ensemble", mode, str)
        check_type("ensemble_size", size, int)
        check_type("ensemble_start", start, float)
        if mode not in MODES:
            raise ValueError(
                f"self_ensemble is {mode!r}, known are none, {', '.join(MODES)}.{did_you_mean(mode, MODES)}"
            )
        if size < 1:
            raise ValueError(f"ensemble_size is {size}: give at least 1 student.")
        if not 0 <= start < float("inf") or (start >= 1 and start != int(start)):
            raise ValueError(f"ensemble_start is {start}: give a number of steps, or a fraction of training below 1.")
        check_storage(storage)
        self.mode = mode
        self.size = size
        self.start = start
        self.storage = storage
        self.final_weights: str | None = None
        self._start_step = 0
        self._parameters: dict[str, nn.Parameter] = {}
        self._average: WindowMean | BestMean | MovingAverage | None = None
        self._loaded: dict[str, Any] = {}

    @classmethod
    def from_args(cls, args):
        """On with `self_ensemble` other than `"none"`."""
        if args.self_ensemble == "none":
            return None
        return cls(args.self_ensemble, args.ensemble_size, args.ensemble_start, args.copy_storage)

    def check(self, args, layer_map: LayerMap) -> None:
        """The parameters must be such that they can be copied, and all there is to average."""
        check_copyable(args, layer_map, f"self_ensemble={self.mode!r}")
        normed = [type(m).__name__ for m in layer_map.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if normed:
            raise ValueError(
                f"self_ensemble averages parameters, but the model has {len(normed)} {normed[0]} modules: their "
                "running statistics are the student's and wrong for the average."
            )
        if self.mode == "best_k" and args.eval_strategy == "no":
            raise ValueError("self_ensemble is 'best_k', but nothing is evaluated: give evaluations or eval_strategy.")
        if args.load_best_model_at_end and args.save_only_model and _is_of_ensemble(args.metric_for_best_model):
            raise ValueError(
                f"metric_for_best_model is {args.metric_for_best_model!r}, a metric of the average, which "
                "save_only_model=True leaves out of the checkpoints: set it to False."
            )

    # --- Training ---

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Begin, or go on with the average of the checkpoint."""
        super().on_train_begin(args, state, control, model=model, **kwargs)
        self._start_step = int(self.start) if self.start >= 1 else round(self.start * state.max_steps)
        if self._start_step >= state.max_steps:
            raise ValueError(
                f"ensemble_start is {self.start:g}, but the training has {state.max_steps} steps: no student would "
                "count."
            )
        self._parameters, self.final_weights = dict(model.named_parameters()), None
        self._average = self._no_average()
        if state.global_step > 0:
            self._average.load_state_dict(self._loaded, self._parameters)
        self._loaded = {}

    def _no_average(self) -> WindowMean | BestMean | MovingAverage:
        if self.mode == "best_k":
            return BestMean(self.size, self.storage)
        if self.mode == "last_k":
            return WindowMean(self.size, with_initial=False, storage=self.storage)
        return MovingAverage(mean_weight if self.mode == "se" else ema_weight)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """What trains in this step joins, if it is not there yet, before it moves."""
        if state.global_step >= self._start_step:
            self._average.include({n: p for n, p in self._parameters.items() if p.requires_grad})

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """The step made a new student, unless mixed precision skipped it."""
        is_student = state.global_step > self._start_step and not optimizer.step_was_skipped
        if is_student and self.mode != "best_k":
            self._average.update()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """The student may be one of the best; an evaluation of the average has none of the student's metrics."""
        if self.mode != "best_k" or self._average is None or state.global_step <= self._start_step:
            return
        metric = f"_{args.metric_for_best_model or 'loss'}".replace("_ensemble_", "_", 1)[1:].removeprefix("eval_")
        if (value := metrics.get(f"eval_{metric}")) is not None:
            higher = args.greater_is_better
            is_better_higher = not metric.endswith("loss") if higher is None else higher
            self._average.offer(value if is_better_higher else -value)

    def evaluated_weights(self) -> dict[str, torch.Tensor] | None:
        """The average, during training."""
        return None if self._average is None else self._average.copies()[0]

    def load_best(self, model, checkpoint, metric):
        """Give the model the average of the best checkpoint, if its metric was the best one."""
        self.final_weights = "ensemble" if _is_of_ensemble(metric) else "student"
        if self.final_weights == "ensemble":
            load_states(checkpoint, [self])
            self._average = self._no_average()
            self._average.load_state_dict(self._loaded, dict(model.named_parameters()))
            self._give_to(model)
        self._average, self._loaded = None, {}

    def on_train_end(self, args, state, control, model=None, **kwargs):
        """Give the average to the model, where no best checkpoint was loaded; after an interrupt, to nobody."""
        if self.final_weights is None and model is not None:
            chosen = not args.load_best_model_at_end or _is_of_ensemble(args.metric_for_best_model)
            chosen = chosen and self._average.count > 0
            self.final_weights = "ensemble" if chosen else "student"
            if chosen:
                self._give_to(model)
        self._average, self._parameters = None, {}

    def _give_to(self, model: nn.Module) -> None:
        named = dict(model.named_parameters())
        with torch.no_grad():
            for name, average in self._average.copies()[0].items():
                named[name].copy_(average)

    # --- State ---

    def state_dict(self) -> dict[str, Any]:
        """The average, and what it takes to go on with it."""
        return {} if self._average is None else self._average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep it for `on_train_begin`, when the parameters are where they stay."""
        self._loaded = state

    def settings(self):
        """As given; the size only where it matters."""
        stored = {} if self.storage == "device" else {"storage": self.storage}
        windowed = {"size": self.size, **stored} if self.mode.endswith("_k") else {}
        return {"mode": self.mode, **windowed, "start": self.start}

    def summary(self) -> str:
        """For people."""
        what = {"se": "mean of all students", "ema": "moving average", "last_k": f"mean of the last {self.size}"}
        what["best_k"] = f"mean of the best {self.size}"
        since = f"{100 * self.start:g} % of the training" if self.start < 1 else f"step {self.start:g}"
        return f"self-ensemble: {what[self.mode]}" + (f" since {since}" if self.start else "")


def _is_of_ensemble(metric: str) -> bool:
    """Whether `evaluate` reports a metric of this name for the average."""
    return "_ensemble_" in f"_{metric}"
