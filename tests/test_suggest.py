import pytest

from hf_ftstrategies.suggest import did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("layer_deacy", ["layer_decay", "mixout"], " Did you mean 'layer_decay'?"),
        ("mixout", {"mixout": 0.9}, " Did you mean 'mixout'?"),
        ("xyz", ["layer_decay", "mixout"], ""),
        ("mixout", [], ""),
    ],
)
def test_nearest_known_name_is_suggested(word, known, expected):
    assert did_you_mean(word, known) == expected
