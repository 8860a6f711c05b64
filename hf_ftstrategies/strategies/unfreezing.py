"""Gradual unfreezing: train the head first, and let the layers below join one after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers.trainer_utils import has_length

from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.phases import (
    MODES,
    Phase,
    built_in_phases,
    check_ends,
    parse_every,
    with_even_ends,
)
from hf_ftstrategies.optim.schedule_file import read_schedule, resolve_schedule
from hf_ftstrategies.strategies.base import Strategy, TrainingLength
from hf_ftstrategies.suggest import check_type, did_you_mean


class GradualUnfreezing(Strategy):
    """Freeze parts of the model by phases, derived from the global step, so that resume and DDP agree.

    All parameters are in the optimizer from step 0. A frozen parameter has `requires_grad=False` and
    `grad=None`, so neither gradients nor weight decay move it; the backward pass stops at the frozen prefix.
    Parameters that were frozen before training (PEFT) stay frozen in every phase.

    Args:
        mode (`str`, *optional*, defaults to `"gradual"`): `"gradual"` (head, then one block more from the top
            each phase, the embeddings last), `"ulmfit"` (head; head and top block; all), `"chain_thaw"` (head
            alone, each layer alone from the embeddings up, all), `"last"` (head and top block throughout),
            `"head"` (head alone throughout), or the path of a YAML schedule
            (`hf-ftstrategies plan RECIPE --write-schedule FILE` writes one).
        every (`str`, `int` or `float`, *optional*, defaults to `"epoch"`): Length of a phase: `"epoch"`,
            optimizer steps, or a fraction of the training below 1. A YAML schedule has its own ends.
        frozen_in_eval_mode (`bool`, *optional*, defaults to `False`): Switch dropout off in modules that are
            frozen as a whole.

    Raises:
        ValueError: unknown mode or unreadable schedule; patterns that match nothing or overlap; phases that
            outlast the training; DDP options under which parameters cannot be frozen.

    Paper: Howard & Ruder 2018, section 3.3 (`gradual`) and their scripts (`ulmfit`); Felbo et al. 2017
    (`chain_thaw`).

    Differs: `gradual` counts pooler and classifier together as the first group. After an early-stopped phase
    the weights go back to the phase's best, Adam's moments do not.
    """

    name = "unfreezing"
    paper = "Howard & Ruder 2018, section 3.3"

    def __init__(self, mode: str = "gradual", every: str | int | float = "epoch", frozen_in_eval_mode: bool = False):
        check_type("unfreezing", mode, str)
        self.mode = mode
        self.every = parse_every(every)
        self.frozen_in_eval_mode = frozen_in_eval_mode
        self._file = None if mode in MODES else self._read_file(mode)
        self._phases: list[Phase] = []
        self._phase = 0
        self._best: float | None = None
        self._waited = 0
        self._best_weights: dict[str, torch.Tensor] = {}
        self._trainable: dict[str, nn.Parameter] = {}
        self._frozen_versions: dict[str, int] = {}
        self._hooks: list[RemovableHandle] = []

    @staticmethod
    def _read_file(path: str) -> list[dict]:
        if not path.lower().endswith((".yaml", ".yml")):
            known = (*MODES, "none")
            raise ValueError(
                f"unfreezing is {path!r}, known are {', '.join(known)} and the path of a .yaml schedule."
                f"{did_you_mean(path, known)}"
            )
        return read_schedule(path)

    @classmethod
    def from_args(cls, args):
        """On with `unfreezing` other than `"none"`."""
        parse_every(args.unfreeze_every)
        return (
            None if args.unfreezing == "none" else cls(args.unfreezing, args.unfreeze_every, args.frozen_in_eval_mode)
        )

    def check(self, args, layer_map: LayerMap) -> None:
        """The schedule must fit the model, and DDP must allow parameters to come and go."""
        if self._file is not None:
            phases = resolve_schedule(self._file, layer_map, None, self.mode)
            if any(phase.early_stop for phase in phases) and args.eval_strategy == "no":
                raise ValueError(
                    f"{self.mode!r} has a phase with early_stop, but nothing is evaluated during training: set "
                    "eval_strategy or evaluations."
                )
        if args.world_size > 1:
            self._check_ddp(args)

    @staticmethod
    def _check_ddp(args) -> None:
        if args.ddp_static_graph:
            raise ValueError(
                "unfreezing changes which parameters train, ddp_static_graph=True forbids it: set it to False."
            )
        # Trainer's default is True, but False under checkpointing (transformers 5.17 calls it gradient_checkpointing)
        checkpointing = getattr(args, "activation_checkpointing", False) or args.gradient_checkpointing
        if args.ddp_find_unused_parameters is False or (args.ddp_find_unused_parameters is None and checkpointing):
            raise ValueError(
                "unfreezing with several processes needs ddp_find_unused_parameters=True"
                + (", which activation checkpointing switches off unless you set it." if checkpointing else ".")
            )

    def phases(self, length: TrainingLength) -> list[Phase]:
        """The phases with their ends in steps; raises where they do not fit the training."""
        trainable = set(self._trainable or self._requiring_grad())
        if self._file is not None:
            phases = resolve_schedule(self._file, self.layer_map, length.steps_per_epoch, self.mode)
        else:
            phases = built_in_phases(self.mode, self.layer_map)
            # PEFT freezes the embeddings, often the head: no phase in which nothing but these would train
            phases = [p for p in phases if p.trains & trainable] or phases
            phases = with_even_ends(phases, self.every, length.total_steps, length.steps_per_epoch)
        idle = [p.name for p in phases if not p.trains & trainable]
        if idle:
            raise ValueError(
                f"unfreezing={self.mode!r}: phase {idle[0]!r} trains nothing, all its parameters have requires_grad="
                "False from the start. PEFT trains a head with modules_to_save=['classifier']."
            )
        check_ends(phases, length.total_steps, length.steps_per_epoch, f"unfreezing={self.mode!r}")
        return phases

    # --- Training ---

    def on_train_begin(self, args, state, control, model=None, train_dataloader=None, **kwargs):
        """Find out which parameters may train at all, and freeze for the current step."""
        super().on_train_begin(args, state, control, model=model, **kwargs)
        steps_per_epoch = state.max_steps  # of streamed data, as Trainer counts
        if has_length(train_dataloader):
            steps_per_epoch = -(-len(train_dataloader) // args.gradient_accumulation_steps)
        self._trainable = self._requiring_grad()
        self._phases = self.phases(TrainingLength(state.max_steps, steps_per_epoch))
        if state.global_step == 0:
            self._phase, self._best, self._waited, self._best_weights = 0, None, 0, {}
        if not 0 <= self._phase < len(self._phases):
            raise ValueError(
                f"The checkpoint is in phase {self._phase + 1} of {len(self._phases)}: resume from another checkpoint."
            )
        if self.frozen_in_eval_mode:
            self._hooks = [m.register_forward_pre_hook(_eval_if_frozen) for m in _parts(self.layer_map)]
        self._enter(self._phase_at(state.global_step))

    def on_step_begin(self, args, state, control, **kwargs):
        """Move on where the phase's last step is done."""
        phase = self._phase_at(state.global_step)
        if phase != self._phase:
            self._enter(phase)

    def on_step_end(self, args, state, control, **kwargs):
        """Make sure that nothing frozen moved."""
        moved = [n for n, v in self._frozen_versions.items() if self._trainable[n]._version != v]
        if moved:
            raise RuntimeError(
                f"{len(moved)} frozen parameters changed in step {state.global_step} (first {moved[0]!r}): something "
                "else writes into the model while `unfreezing` holds it."
            )

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Count the evaluations without improvement of an early-stopped phase."""
        phase = self._phases[self._phase] if self._phases and self._trainable else None
        if phase is None or phase.early_stop is None:
            return
        stop = phase.early_stop
        if stop.key not in metrics and "eval_runtime" not in metrics:
            return  # one of several evaluation sets, and not the one with the metric
        if stop.key not in metrics:
            raise ValueError(
                f"Phase {phase.name!r} stops on {stop.key!r}, evaluation reports {', '.join(sorted(metrics))}."
                f"{did_you_mean(stop.key, metrics)}"
            )
        if stop.better(metrics[stop.key], self._best):
            self._best, self._waited = metrics[stop.key], 0
            self._best_weights = {n: self._trainable[n].detach().clone() for n in self._training_names()}
            return
        self._waited += 1
        if self._waited < stop.patience:
            return
        if self._phase + 1 == len(self._phases):
            self._restore_best()
            control.should_training_stop = True
        else:
            self._enter(self._phase_at(state.global_step, at_least=self._phase + 1))

    def on_train_end(self, args, state, control, **kwargs):
        """Give the model back as it was: everything that could train can train again."""
        for param in self._trainable.values():
            param.requires_grad_(True)
        for hook in self._hooks:
            hook.remove()
        self._trainable, self._frozen_versions, self._best_weights = {}, {}, {}

    def _requiring_grad(self) -> dict[str, nn.Parameter]:
        depths = range(self.layer_map.head_depth + 1)
        named = {n: p for depth in depths for n, p in self.layer_map.parameters_at(depth).items()}
        return {n: p for n, p in named.items() if p.requires_grad}

    def _phase_at(self, step: int, at_least: int | None = None) -> int:
        """The phase of a step: the first, from the current one on, whose end lies beyond it."""
        phase = self._phase if at_least is None else at_least
        while self._phases[phase].until_step is not None and step >= self._phases[phase].until_step:
            phase += 1
        return min(phase, len(self._phases) - 1)

    def _training_names(self) -> list[str]:
        return [n for n in self._trainable if n in self._phases[self._phase].trains]

    def _enter(self, phase: int) -> None:
        if phase != self._phase:
            self._restore_best()
        self._phase = phase
        training = set(self._training_names())
        for name, param in self._trainable.items():
            param.requires_grad_(name in training)
            if name not in training:
                param.grad = None  # an old gradient would move it on, a zero one would still decay it
        self._frozen_versions = {n: p._version for n, p in self._trainable.items() if n not in training}

    def _restore_best(self) -> None:
        """An early-stopped phase ends with the best weights it had."""
        with torch.no_grad():
            for name, weights in self._best_weights.items():
                self._trainable[name].copy_(weights)
        self._best, self._waited, self._best_weights = None, 0, {}

    # --- State ---

    def state_dict(self) -> dict[str, Any]:
        """The phase and, within an early-stopped one, its best value and weights."""
        state = {"phase": self._phase, "best": self._best, "waited": self._waited}
        return state | {f"best_weights.{n}": w for n, w in self._best_weights.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue in the same phase."""
        check_type("phase", state["phase"], int)
        check_type("best", state["best"], float, type(None))
        check_type("waited", state["waited"], int)
        self._phase, self._best, self._waited = state["phase"], state["best"], state["waited"]
        prefix = "best_weights."
        self._best_weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

    def settings(self):
        """As given; a schedule file by its content."""
        settings = {"mode": self.mode, "every": self.every, "frozen_in_eval_mode": self.frozen_in_eval_mode}
        return settings | ({} if self._file is None else {"schedule": self._file})

    def summary(self) -> str:
        """For people."""
        if self._file is not None:
            return f"unfreezing by {self.mode} ({len(self._file)} phases)"
        every = "epoch"
        if self.every != "epoch":
            every = f"{self.every} steps" if self.every >= 1 else f"{self.every:g} of the training"
        return f"unfreezing {self.mode!r}" + ("" if self.mode in ("last", "head") else f", a phase every {every}")


def _parts(layer_map: LayerMap) -> list[nn.Module]:
    pooler = [layer_map.pooler] if layer_map.pooler is not None else []
    return [*layer_map.embeddings, *layer_map.blocks, *pooler, *layer_map.head]


def _eval_if_frozen(module: nn.Module, args) -> None:
    """Trainer calls `model.train()` before every step; a wholly frozen module goes back to eval mode."""
    if module.training and not any(p.requires_grad for p in module.parameters()):
        module.eval()
