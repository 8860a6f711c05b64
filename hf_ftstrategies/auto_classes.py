"""Teaches Transformers' Auto classes the models of this package.

`import hf_ftstrategies` is enough for `AutoModelForSequenceClassification.from_pretrained` to know them, in whatever
order the two are imported, and yet does not import Transformers, which takes seconds: it waits until somebody imports
the Auto classes of models. (`AutoConfig` alone comes before them and does not count.)
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec

_AUTO_CLASSES = "transformers.models.auto.modeling_auto"
_MODELS = ("classifier", "multitask", "awd_lstm")


class _WaitForAutoClasses(MetaPathFinder):
    """Finds the module of the Auto classes as everybody would, and registers the models once it has been executed."""

    def find_spec(self, name, path=None, target=None):
        """As of every finder; nothing but that one module, once."""
        if name != _AUTO_CLASSES:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_register(module):
            execute(module)
            with suppress(ImportError):  # in the midst of other imports; `from hf_ftstrategies import ...` still works
                _register()

        spec.loader.exec_module = execute_and_register
        return spec


def register_models() -> None:
    """Register the models now, or when Transformers' Auto classes are imported."""
    if _AUTO_CLASSES in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _WaitForAutoClasses())


def _register() -> None:
    for name in _MODELS:
        import_module(f"hf_ftstrategies.modeling.{name}")
