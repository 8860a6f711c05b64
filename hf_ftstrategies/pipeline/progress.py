"""The progress bar of a stage: which stage and phase, how far, how long still."""

from __future__ import annotations

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging as transformers_logging

from hf_ftstrategies.plan import Plan


def hush_transformers() -> None:
    """No load reports, advice and bars of reading and writing weights; errors stay."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


class StageProgress(ProgressCallback):
    """Trainer's bar (steps, rate, time left) with stage, phase and losses in it, instead of lines of numbers.

    Args:
        stage (`str`): What is being done, for people.
        plan (`Plan`): Names and ends of the phases.
    """

    def __init__(self, stage: str, plan: Plan):
        super().__init__()
        self.stage = stage
        self.phases = plan.phases
        self.shown: dict[str, str] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs):
        """Name the stage, and go to the step of a resumed run."""
        super().on_train_begin(args, state, control, **kwargs)
        self._describe(state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs):
        """Name the phase."""
        super().on_step_end(args, state, control, **kwargs)
        self._describe(state)

    def on_prediction_step(self, args, state: TrainerState, control: TrainerControl, eval_dataloader=None, **kwargs):
        """Name the bar of an evaluation."""
        super().on_prediction_step(args, state, control, eval_dataloader=eval_dataloader, **kwargs)
        if self.prediction_bar is not None:
            self.prediction_bar.set_description("evaluating", refresh=False)

    def _describe(self, state: TrainerState) -> None:
        if self.training_bar is None:
            return
        done = sum(p["last_step"] is not None and p["last_step"] <= state.global_step for p in self.phases[:-1])
        phase = f", phase {done + 1}/{len(self.phases)} ({self.phases[done]['name']})" if len(self.phases) > 1 else ""
        self.training_bar.set_description(f"{self.stage}{phase}", refresh=False)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs=None, **kwargs):
        """Show the newest loss and the selecting metric beside the bar."""
        if self.training_bar is None:
            return
        metric = str(args.metric_for_best_model).removeprefix("eval_")
        wanted = {"loss": "loss", f"eval_{metric}": f"validation {metric}"}
        self.shown |= {name: f"{logs[key]:.3g}" for key, name in wanted.items() if key in logs}
        self.training_bar.set_postfix(self.shown, refresh=False)
