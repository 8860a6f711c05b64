"""Evenly spaced evaluations: a fixed number of them over the training, however long it is."""

from __future__ import annotations

from hf_ftstrategies.strategies.base import Strategy
from hf_ftstrategies.suggest import check_type


class EvenEvaluations(Strategy):
    """Evaluate (and save) at `count` evenly spaced steps, the last of them the last step of the training.

    Together with `load_best_model_at_end` this is how Zhang et al. choose a model: the best of ten.
    Evaluation k of n is after step `ceil(k * total_steps / n)`.

    Args:
        count (`int`): Number of evaluations; with fewer steps than that, one after every step.

    Raises:
        ValueError: fewer than one; an `eval_strategy` other than steps.

    Paper: Zhang et al. 2021, section 3.
    """

    name = "even_evaluations"
    paper = "Zhang et al. 2021, section 3"

    def __init__(self, count: int = 10):
        check_type("evaluations", count, int)
        if count < 1:
            raise ValueError(f"evaluations is {count}: give at least 1.")
        self.count = count

    @classmethod
    def from_args(cls, args):
        """On with `evaluations`."""
        return None if args.evaluations is None else cls(args.evaluations)

    def check(self, args, layer_map) -> None:
        """Trainer must evaluate by steps, or it would add evaluations of its own at each epoch's end."""
        if args.eval_strategy != "steps":
            raise ValueError(
                f"evaluations={self.count} needs eval_strategy='steps', which is {str(args.eval_strategy.value)!r}."
            )

    def is_due(self, step: int, total_steps: int) -> bool:
        """Whether an evaluation comes after `step` steps."""
        return step * self.count // total_steps > (step - 1) * self.count // total_steps

    def on_step_end(self, args, state, control, **kwargs):
        """Replace the decision that Trainer took from `eval_steps`."""
        due = self.is_due(state.global_step, state.max_steps)
        control.should_evaluate = due
        if args.save_strategy == "steps":
            control.should_save = due

    def settings(self):
        """As given."""
        return {"count": self.count}

    def summary(self) -> str:
        """For people."""
        return f"{self.count} evenly spaced evaluations"
