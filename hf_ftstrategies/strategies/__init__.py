"""One published technique per file; here, the order in which they act."""

from __future__ import annotations

from hf_ftstrategies.strategies.base import Strategy, TrainingLength
from hf_ftstrategies.strategies.early_stopping import EarlyStopping
from hf_ftstrategies.strategies.even_evaluations import EvenEvaluations
from hf_ftstrategies.strategies.layer_distance import LayerDistance
from hf_ftstrategies.strategies.layerwise_lr import LayerwiseLearningRate
from hf_ftstrategies.strategies.mixout import Mixout
from hf_ftstrategies.strategies.pretrained_decay import PretrainedWeightDecay
from hf_ftstrategies.strategies.reinit import ReinitTopLayers
from hf_ftstrategies.strategies.self_distillation import SelfDistillation
from hf_ftstrategies.strategies.self_ensemble import SelfEnsemble
from hf_ftstrategies.strategies.unfreezing import GradualUnfreezing

# Re-init first: others remember the weights it leaves behind.
ALL = (
    ReinitTopLayers,
    Mixout,
    PretrainedWeightDecay,
    LayerwiseLearningRate,
    GradualUnfreezing,
    SelfDistillation,
    SelfEnsemble,
    EvenEvaluations,
    EarlyStopping,
    LayerDistance,
)

__all__ = [
    "ALL",
    "EarlyStopping",
    "EvenEvaluations",
    "GradualUnfreezing",
    "LayerDistance",
    "LayerwiseLearningRate",
    "Mixout",
    "PretrainedWeightDecay",
    "ReinitTopLayers",
    "SelfDistillation",
    "SelfEnsemble",
    "Strategy",
    "TrainingLength",
    "make_strategies",
]


def make_strategies(args) -> list[Strategy]:
    """The strategies that the fields of `StrategyTrainingArguments` switch on, in the order of `ALL`.

    Raises:
        ValueError: a field has a value that its strategy does not take.
    """
    return [strategy for cls in ALL if (strategy := cls.from_args(args)) is not None]
