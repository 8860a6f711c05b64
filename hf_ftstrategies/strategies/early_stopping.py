"""Early stopping whose patience survives a resume."""

from __future__ import annotations

from typing import Any

from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type


class EarlyStopping(Strategy):
    """Stop when `metric_for_best_model` has not improved for `patience` evaluations.

    Transformers' `EarlyStoppingCallback` starts counting anew on resume; here the count is in the checkpoint.

    Args:
        patience (`int`, *optional*, defaults to 3): Evaluations in a row without improvement.

    Raises:
        ValueError: patience below 1; no evaluation or no `metric_for_best_model` to look at; resuming a run
            that had stopped.

    Paper: Prechelt 1998, "Early stopping - but when?", criterion UP.
    """

    name = "early_stopping"
    paper = "Prechelt 1998, criterion UP"

    def __init__(self, patience: int = 3):
        check_type("early_stopping_patience", patience, int)
        if patience < 1:
            raise ValueError(f"early_stopping_patience is {patience}: give at least 1 evaluation.")
        self.patience = patience
        self._best: float | None = None
        self._waited = 0
        self._stopped_at: int | None = None
        self._training = False

    @classmethod
    def from_args(cls, args):
        """On with `early_stopping_patience`."""
        return None if args.early_stopping_patience is None else cls(args.early_stopping_patience)

    def check(self, args, layer_map) -> None:
        """There must be a metric to watch."""
        if args.metric_for_best_model is None or args.eval_strategy == "no":
            raise ValueError(
                f"early_stopping_patience={self.patience} needs metric_for_best_model (is "
                f"{args.metric_for_best_model!r}) and evaluations during training (eval_strategy is "
                f"{str(args.eval_strategy.value)!r})."
            )

    def on_train_begin(self, args, state, control, **kwargs):
        """Refuse to go on with a run that was over."""
        super().on_train_begin(args, state, control, **kwargs)
        if state.global_step == 0:
            self._best, self._waited, self._stopped_at = None, 0, None
        if self._stopped_at is not None:
            raise ValueError(
                f"This run stopped early at step {self._stopped_at} (no improvement in {self.patience} "
                f"evaluations): there is nothing to resume. Its best checkpoint is {state.best_model_checkpoint}."
            )
        self._training = True

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Count."""
        if not self._training:
            return
        key = args.metric_for_best_model
        value = metrics.get(key if key.startswith("eval_") else f"eval_{key}")
        if value is None:  # of another of several evaluation sets; StrategyTrainer names an unknown metric
            return
        improved = self._best is None or (value > self._best if args.greater_is_better else value < self._best)
        self._best, self._waited = (value, 0) if improved else (self._best, self._waited + 1)
        if self._waited >= self.patience:
            self._stopped_at = state.global_step
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        """Later evaluations do not count."""
        self._training = False

    def state_dict(self) -> dict[str, Any]:
        """The count."""
        return {"best": self._best, "waited": self._waited, "stopped_at": self._stopped_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on."""
        check_type("best", state["best"], float, type(None))
        check_type("waited", state["waited"], int)
        check_type("stopped_at", state["stopped_at"], int, type(None))
        self._best, self._waited, self._stopped_at = state["best"], state["waited"], state["stopped_at"]

    def settings(self):
        """As given."""
        return {"patience": self.patience}

    def summary(self) -> str:
        """For people."""
        return f"early stopping after {self.patience} evaluations without improvement"
