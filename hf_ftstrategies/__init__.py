"""Fine-tuning strategies for pretrained encoders, as one Hugging Face Trainer.

The public names are imported when they are first used, so `import hf_ftstrategies` costs nothing; Transformers' Auto
classes know the models of this package after it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hf_ftstrategies.auto_classes import register_models
from hf_ftstrategies.version import __version__

_PUBLIC = {
    "AwdLstmConfig": "modeling.awd_lstm",
    "AwdLstmForCausalLM": "modeling.awd_lstm",
    "AwdLstmForSequenceClassification": "modeling.awd_lstm",
    "BertAdam": "optim.bert_adam",
    "EarlyStopping": "strategies.early_stopping",
    "EncoderClassifier": "modeling.classifier",
    "EncoderClassifierConfig": "modeling.classifier",
    "EvenEvaluations": "strategies.even_evaluations",
    "GradualUnfreezing": "strategies.unfreezing",
    "LayerDistance": "strategies.layer_distance",
    "LayerMap": "modeling.layer_map",
    "LayerwiseLearningRate": "strategies.layerwise_lr",
    "Mixout": "strategies.mixout",
    "MultiTaskClassifier": "modeling.multitask",
    "MultiTaskClassifierConfig": "modeling.multitask",
    "MultiTaskRows": "data.multitask",
    "PretrainedWeightDecay": "strategies.pretrained_decay",
    "ReinitTopLayers": "strategies.reinit",
    "SelfDistillation": "strategies.self_distillation",
    "SelfEnsemble": "strategies.self_ensemble",
    "Strategy": "strategies.base",
    "StrategyTrainer": "trainer",
    "StrategyTrainerMixin": "trainer",
    "StrategyTrainingArguments": "arguments",
    "build_next_sentence_examples": "data.next_sentence",
    "slanted_triangular": "optim.schedules",
    "truncate": "data.truncation",
}

__all__ = [*_PUBLIC, "__version__"]

if TYPE_CHECKING:
    from hf_ftstrategies.arguments import StrategyTrainingArguments
    from hf_ftstrategies.data.multitask import MultiTaskRows
    from hf_ftstrategies.data.next_sentence import build_next_sentence_examples
    from hf_ftstrategies.data.truncation import truncate
    from hf_ftstrategies.modeling.awd_lstm import AwdLstmConfig, AwdLstmForCausalLM, AwdLstmForSequenceClassification
    from hf_ftstrategies.modeling.classifier import EncoderClassifier, EncoderClassifierConfig
    from hf_ftstrategies.modeling.layer_map import LayerMap
    from hf_ftstrategies.modeling.multitask import MultiTaskClassifier, MultiTaskClassifierConfig
    from hf_ftstrategies.optim.bert_adam import BertAdam
    from hf_ftstrategies.optim.schedules import slanted_triangular
    from hf_ftstrategies.strategies.base import Strategy
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
    from hf_ftstrategies.trainer import StrategyTrainer, StrategyTrainerMixin


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'hf_ftstrategies' has no attribute {name!r}")
    return getattr(import_module(f"hf_ftstrategies.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_models()
