"""Settings of every strategy for a training of some steps, and which of them go together."""

STRATEGIES = {
    "layerwise": {"layer_decay": 0.9},
    "triangular": {"lr_schedule": "slanted_triangular"},
    "bert adam": {"bias_correction": False, "lr_schedule": "bert_linear", "warmup_steps": 2},
    "gradual": {"unfreezing": "gradual", "unfreeze_every": "1"},
    "chain-thaw": {"unfreezing": "chain_thaw", "unfreeze_every": "1"},
    "re-init": {"reinit_layers": 1},
    "mixout": {"mixout": 0.5},
    "pre-trained decay": {"pretrained_weight_decay": 1.0},
    "distance": {"log_layer_distance": True},
    "sda": {"self_distillation": "sda", "teacher_size": 3},
    "sdv": {"self_distillation": "sdv", "teacher_size": 2},
    "ema teacher": {"self_distillation": "ema"},
    "se": {"self_ensemble": "se"},
    "last k": {"self_ensemble": "last_k", "ensemble_size": 2, "ensemble_start": 2},
    "best k": {"self_ensemble": "best_k", "ensemble_size": 2, "evaluations": 2},
    "early stopping": {"early_stopping_patience": 5, "evaluations": 2, "load_best_model_at_end": True},
}


def joined(*names: str) -> dict | None:
    """The settings of several strategies; None where one option would be given twice."""
    settings = {}
    for name in names:
        if any(settings.get(key, value) != value for key, value in STRATEGIES[name].items()):
            return None
        settings |= STRATEGIES[name]
    return settings
