"""Where a recipe's result goes besides its folder: `--push_to_hub --hub_model_id user/name`.

The finished folder is pushed, once, by the first process. The Trainer's own pushes during training stay off: they
would publish half-trained weights without a card, and `training_args.bin` with paths of this machine. That a push is
allowed is found out before anything is computed; if it fails at the end, the run has succeeded all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from transformers.trainer_utils import HubStrategy

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.hub.push import claim_repository, push_folder


@dataclass(frozen=True)
class Destination:
    """A repository that a run will be pushed to.

    Args:
        repo_id (`str`): `"user/name"`, or `"name"` in the namespace of the token's owner.
        private (`bool`): Make it a private one.
        token (`str`, *optional*): The one of the environment or of `hf auth login` if None.
    """

    repo_id: str
    private: bool
    token: str | None = field(repr=False)

    def claim(self, settings: dict[str, Any], folder: Path) -> None:
        """Prove that the run can be pushed when it has finished.

        Args:
            settings (`dict`): Of the run.
            folder (`Path`): Where the run will be.

        Raises:
            ValueError: it cannot.
        """
        try:
            claim_repository(self.repo_id, settings, self.private, self.token)
        except ValueError as error:
            raise ValueError(f"{error} Or leave out --push_to_hub: {folder} can be pushed at any time.") from error

    def push(self, folder: Path, console: Console) -> None:
        """Push a finished run; say where it is, or why it is not there.

        Args:
            folder (`Path`): Of the run.
            console (`Console`): To print on.
        """
        try:
            pushed = push_folder(folder, self.repo_id, private=self.private, token=self.token)
        except ValueError as error:
            console.print(f"[bold yellow]warning:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        else:
            console.print(f"Pushed: {pushed.repo_url}", soft_wrap=True)


def take_destination(args: StrategyTrainingArguments) -> tuple[StrategyTrainingArguments, Destination | None]:
    """Take the push out of the arguments of the training.

    Args:
        args (`StrategyTrainingArguments`): `push_to_hub`, `hub_model_id`, `hub_private_repo` and `hub_token` are read.

    Returns:
        `tuple[StrategyTrainingArguments, Destination | None]`: The arguments without push and token, and where to
        push, or None.

    Raises:
        ValueError: no `hub_model_id`; a `hub_strategy` or `hub_revision` that recipes do not have.
    """
    rest = replace(args, push_to_hub=False, hub_token=None)
    if not args.push_to_hub:
        return rest, None
    if args.hub_model_id is None:
        raise ValueError("--push_to_hub needs a repository: --hub_model_id user/name.")
    if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
        strategy = HubStrategy(args.hub_strategy).value
        raise ValueError(f"hub_strategy is {strategy!r}, but a recipe pushes no checkpoints: leave it out.")
    if args.hub_revision is not None:
        raise ValueError(
            f"hub_revision is {args.hub_revision!r}, but a recipe pushes to the main branch: leave it out."
        )
    return rest, Destination(args.hub_model_id, bool(args.hub_private_repo), args.hub_token)


def without_token(argv: Sequence[str]) -> list[str]:
    """A command line without `--hub_token`, to be shown."""
    kept, words = [], iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if name.replace("-", "_") != "__hub_token":
            kept.append(word)
        elif not equals:
            next(words, None)
    return kept
