"""How to fine-tune on several tasks together before the run's own; fields of a recipe beside those of the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from hf_ftstrategies.data.multitask import SAMPLINGS
from hf_ftstrategies.suggest import did_you_mean


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class MultiTaskArguments:
    """Multi-task fine-tuning of a run. With `multitask="none"` nothing else here is looked at.

    Args:
        multitask (`str`, *optional*, defaults to `"none"`): Names or paths of data sets, separated by commas, on which
            one encoder with a head for each is fine-tuned before the run's own data set, which is usually one of
            them. `train_rows`, `validation_rows` and `test_rows` of the run hold for each.
        multitask_epochs (`float`, *optional*, defaults to 3.0): Passes over all of them.
        multitask_steps (`int`, *optional*): Optimizer steps instead.
        multitask_learning_rate (`float`, *optional*, defaults to 2e-5): Peak rate. Schedule, layer-wise decay,
            optimizer and batch are those of the run; its other strategies act in its own fine-tuning alone.
        multitask_sampling (`str`, *optional*, defaults to `"proportional"`): As in `MultiTaskRows`.

    Raises:
        ValueError: a value that makes no sense.

    Paper: Sun et al. 2019, sections 3.4 and 5.5 (`MFiT-FiT`); Liu et al. 2019 (MT-DNN).
    """

    multitask: str = _option("none", "none, or data sets separated by commas to fine-tune on together first.")
    multitask_epochs: float = _option(3.0, "Epochs of the multi-task fine-tuning.")
    multitask_steps: int | None = _option(None, "Its optimizer steps, instead of epochs.")
    multitask_learning_rate: float = _option(2e-5, "Its peak learning rate.")
    multitask_sampling: str = _option(
        "proportional", "How often each task has its turn: proportional, square_root, equal."
    )

    def __post_init__(self):
        for name in ("multitask_epochs", "multitask_steps", "multitask_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}: give a number above 0.")
        known = ("proportional", *SAMPLINGS)
        if self.multitask_sampling not in known:
            hint = did_you_mean(self.multitask_sampling, known)
            raise ValueError(f"multitask_sampling is {self.multitask_sampling!r}, known are {', '.join(known)}.{hint}")
        if self.is_on and len(self.tasks) < 2:
            raise ValueError(f"multitask is {self.multitask!r}: give two or more data sets, separated by commas.")

    @property
    def is_on(self) -> bool:
        """Whether there is any multi-task fine-tuning."""
        return self.multitask != "none"

    @property
    def tasks(self) -> dict[str, str]:
        """The data set of each task; a task has the last part of its name, in letters, digits and `_`."""
        names = [name.strip() for name in self.multitask.split(",") if name.strip()]
        tasks = {re.sub(r"\W", "_", Path(name).stem): name for name in names}
        if len(tasks) < len(names):
            raise ValueError(
                f"multitask is {self.multitask!r}, which makes only the tasks {', '.join(tasks)}: rename some."
            )
        return tasks

    def describe(self) -> str:
        """The stage in one line, for the plan."""
        length = (
            f"{self.multitask_epochs:g} epochs" if self.multitask_steps is None else f"{self.multitask_steps:,} steps"
        )
        return (
            f"multi-task fine-tuning first: {length} on {', '.join(self.tasks.values())} together "
            f"({self.multitask_sampling} sampling), peak rate {self.multitask_learning_rate:g}"
        )
