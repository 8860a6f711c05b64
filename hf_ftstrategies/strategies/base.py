"""What a fine-tuning strategy is: a `TrainerCallback` with the few extra places in which a technique acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import TrainerCallback, TrainingArguments

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.groups import ParameterGroup

# Hooks that only StrategyTrainer calls. A strategy that needs one does nothing under a plain Trainer.
_TRAINER_HOOKS = ("prepare_model", "adjust_groups", "loss_term", "training_logs", "evaluated_weights", "load_best")


@dataclass(frozen=True)
class TrainingLength:
    """How long a training is.

    Args:
        total_steps (`int`): Optimizer steps in all.
        steps_per_epoch (`int`): Optimizer steps of one pass over the training data.

    Raises:
        ValueError: no step at all.
    """

    total_steps: int
    steps_per_epoch: int

    def __post_init__(self):
        if self.total_steps < 1:
            raise ValueError(f"The training has {self.total_steps} steps: set num_train_epochs or max_steps above 0.")


class Strategy(TrainerCallback):
    """One published fine-tuning technique: its settings, its hooks, its state, its paper.

    Subclasses override the hooks they need; all others do nothing. The callback events of `TrainerCallback`
    are hooks too: `on_train_begin` comes after wrapping (DDP) and after resume.

    Attributes:
        name (`str`): Key of the strategy in checkpoints, plans and cards.
        paper (`str`): Where the technique was published.
        layer_map (`LayerMap`): Depths of the model being trained; set before any other hook.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    layer_map: LayerMap | None = None

    @classmethod
    def from_args(cls, args: TrainingArguments) -> Strategy | None:
        """The strategy as the fields of `StrategyTrainingArguments` ask for it, or None where they do not."""
        return None

    def check(self, args: TrainingArguments, layer_map: LayerMap) -> None:
        """Raise one clear `ValueError` if the strategy cannot work on this model with these arguments."""

    def prepare_model(self, model: nn.Module, layer_map: LayerMap) -> None:
        """Change the model once, before the optimizer exists and before wrapping; never called on resume."""

    def adjust_groups(self, groups: list[ParameterGroup], layer_map: LayerMap) -> None:
        """Change rates and decays of the parameter groups in place."""

    def loss_term(self, model: nn.Module, inputs: dict[str, Any], outputs: Any) -> torch.Tensor | None:
        """A scalar to add to the task loss of this micro-batch, or None."""
        return None

    def training_logs(self, step: int) -> dict[str, float | torch.Tensor]:
        """Scalars of this process to log beside the training loss of a step; logged is the mean over processes."""
        return {}

    def evaluated_weights(self) -> dict[str, torch.Tensor] | None:
        """Weights by parameter name to evaluate beside the model's own, as metrics `ensemble_...`; None for none."""
        return None

    def load_best(self, model: nn.Module, checkpoint: str, metric: str) -> None:
        """The model has just got the weights of the best checkpoint by `metric`; other weights may be wanted."""

    def phases(self, length: TrainingLength) -> list:
        """The phases in which different parameters train (`optim.phases.Phase`), empty if all train always."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs beyond `state.global_step`: tensors and JSON values, one flat dictionary."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def settings(self) -> dict[str, Any]:
        """The settings as JSON values; they are part of the fingerprint of a run."""
        return {}

    def summary(self) -> str:
        """The strategy and its settings in one line, for people."""
        return ", ".join(f"{key}={value}" for key, value in self.settings().items())

    def describe(self) -> dict[str, Any]:
        """Facts for the plan, the report and the card."""
        return {
            "name": self.name,
            "class": type(self).__name__,
            "paper": self.paper,
            "settings": self.settings(),
            "summary": self.summary(),
        }

    def attach(self, args: TrainingArguments, layer_map: LayerMap) -> None:
        """Bind the strategy to a model and check that it can work there. Called by `StrategyTrainer`."""
        self.layer_map = layer_map
        self.check(args, layer_map)

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Used as a plain callback of a stock Trainer: attach, or say that it cannot work there."""
        if self.layer_map is not None:
            return
        needed = [h for h in _TRAINER_HOOKS if getattr(type(self), h) is not getattr(Strategy, h)]
        if needed:
            raise ValueError(
                f"{type(self).__name__} was given to a Trainer that does not call its {', '.join(needed)}: it "
                "would do nothing. Pass it as StrategyTrainer(strategies=[...]) or use StrategyTrainerMixin."
            )
        self.attach(args, LayerMap.from_model(model))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"
