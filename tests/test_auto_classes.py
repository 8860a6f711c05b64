"""After `import hf_ftstrategies` the Auto classes know its models, whoever is imported first."""

import subprocess
import sys

import pytest

KNOWN = """
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSequenceClassification
for cls, names in ((AutoModelForSequenceClassification, "encoder_classifier multitask_classifier awd_lstm"),
                   (AutoModelForCausalLM, "awd_lstm")):
    for name in names.split():
        assert cls._model_mapping[CONFIG_MAPPING[name]].__module__.startswith("hf_ftstrategies."), name
"""
ORDERS = {
    "package first": f"import hf_ftstrategies, sys; assert not {{'torch', 'transformers'}} & {{*sys.modules}}\n{KNOWN}",
    "Transformers first": f"import transformers\n{KNOWN.splitlines()[1]}\nimport hf_ftstrategies\n{KNOWN}",
    "in between": f"from transformers import AutoConfig\nimport hf_ftstrategies\nimport transformers.trainer\n{KNOWN}",
    "only a trainer": f"from hf_ftstrategies import StrategyTrainer\n{KNOWN}",
}


@pytest.mark.parametrize("code", ORDERS.values(), ids=ORDERS)
def test_known_in_any_order(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]


def test_the_import_of_transformers_is_left_as_it_was():
    """The finder waits for one module, finds it once, and is gone."""
    code = (
        "import sys, hf_ftstrategies; own = [f for f in sys.meta_path if 'hf_ftstrategies' in type(f).__module__]\n"
        "import transformers.models.auto.modeling_auto as auto\n"
        "assert len(own) == 1 and own[0] not in sys.meta_path and auto.__spec__.origin == auto.__file__"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
