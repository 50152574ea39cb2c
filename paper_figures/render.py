"""From a figure's name to its files: tables, pictures and the manifest, the same bytes on every run.

Numbers go to CSV text first and the plot is drawn from that text, so a figure cannot show what its files
do not hold. Nothing written depends on the date or on the machine's folders.
"""

import hashlib
import importlib
import io
import json
import logging
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import from_csv, to_csv

MANIFEST = "manifest.json"

# fontTools remarks on the age of Matplotlib's own fonts, which no reader can act on.
logging.getLogger("fontTools").setLevel(logging.ERROR)

_PICTURES = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Format -> metadata that Matplotlib would fill in by itself."""


def render(name: str, settings: Settings, out: Path) -> dict[str, Any]:
    """Compute and draw one figure, write its files into ``out`` and enter it in the manifest there.

    Args:
        name: of the figure, one of ``paper_figures.FIGURES``.
        settings: the user's choices.
        out: an existing folder.

    Returns:
        The figure's entry in the manifest.

    Raises:
        DataError: the data file does not hold what the figure needs.
        OSError: a file cannot be written.
        ValueError: ``out`` holds a foreign manifest.
    """
    manifest = read_manifest(out)
    module = importlib.import_module(f"paper_figures.{name}")
    texts = {table: to_csv(columns) for table, columns in module.compute(settings).items()}
    tables = {table: from_csv(text) for table, text in texts.items()}
    contents = {f"{name}.{kind}": picture for kind, picture in pictures(module, tables).items()}
    contents |= {f"{name}-{table}.csv": text.encode() for table, text in texts.items()}
    for file, content in contents.items():
        write_whole(out / file, content)
    entry = {
        "script": module.__name__,
        "finding": module.finding(tables),
        "data": _data(module, settings),
        "seed": settings.seed,
        "quick": settings.quick,
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("matplotlib", "numpy", "torch")},
        "files": {file: sha256(content) for file, content in sorted(contents.items())},
    }
    manifest[name] = entry
    text = json.dumps({"figures": manifest}, indent=2, sort_keys=True, ensure_ascii=False)
    write_whole(out / MANIFEST, f"{text}\n".encode())
    return entry


def pictures(module: Any, tables: Mapping[str, Any]) -> dict[str, bytes]:
    """The figure drawn from its tables, once per format."""
    drawn = {}
    with style.look():
        figure = module.draw(tables)
        for kind, metadata in _PICTURES.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            drawn[kind] = buffer.getvalue()
    return drawn


def read_manifest(out: Path) -> dict[str, Any]:
    """The entries of the manifest in a folder, by figure; none where there is no manifest yet.

    Raises:
        ValueError: ``manifest.json`` is there but is not one of ours.
    """
    path = out / MANIFEST
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text())["figures"])
    except (ValueError, TypeError, KeyError):
        message = f"{path} is not a manifest of figures; move it or choose another folder"
        raise ValueError(message) from None


def _data(module: Any, settings: Settings) -> dict[str, str] | None:
    if settings.data is None or not module.READS_DATA:
        return None
    return {"file": settings.data.name, "sha256": sha256(settings.data.read_bytes())}


def sha256(content: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a reader never sees half of it, nor does a crash leave one."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
