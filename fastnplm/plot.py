"""Learning curves, drawn from the ``history.jsonl`` of models (extra ``plot``)."""

import json
import os
from pathlib import Path

from .errors import ModelError, SettingsError

FORMATS = (".png", ".svg")


def read_history(folder):
    """The records of a model's history.jsonl: one dict an epoch.

    Raises ModelError if there is none or a line is no record.
    """
    path = Path(folder) / "history.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            record["epoch"], record["train_loss"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ModelError(f"{path}:{number}: is not the record of an epoch") from None
        records.append(record)
    if not records:
        raise ModelError(f"{path} is empty; there is nothing to draw")
    return records


def draw(folders, out):
    """Draw the perplexity of each epoch of the models in ``folders`` to the file ``out``.

    Solid: validation; dashed: training (the running mean of the epoch, with dropout on), where
    the loss is the exact one. Raises SettingsError for a name that is neither .png nor .svg, or
    without matplotlib.
    """
    out = Path(out)
    if out.suffix.lower() not in FORMATS:
        raise SettingsError(f"{out} is neither a {' nor a '.join(FORMATS)} file")
    histories = {str(folder): read_history(folder) for folder in folders}
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError("plot needs matplotlib; pip install 'fastnplm[plot]'") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, records) in enumerate(histories.items()):
        colour, shown = f"C{number}", _shown(name) if len(histories) > 1 else ""
        for key, style, what in (
            ("valid_perplexity", "-o", "validation"),
            ("train_perplexity", "--", "training"),
        ):
            points = [(r["epoch"], r[key]) for r in records if r.get(key) is not None]
            if points:
                label = f"{shown} {what}".strip()
                axes.plot(*zip(*points, strict=True), style, color=colour, label=label, ms=4)
    if not axes.lines:
        raise ModelError(
            "these histories hold no perplexity: train with --valid to have one for a sampled loss"
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel("perplexity")
    axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    fresh = out.with_name(f".{out.name}.{os.getpid()}{out.suffix}")
    try:
        with rc_context({"svg.hashsalt": "fastnplm"}):  # the same curves give the same bytes
            metadata = {"Date": None} if out.suffix.lower() == ".svg" else {}
            figure.savefig(fresh, dpi=150, metadata=metadata)
        os.replace(fresh, out)
    finally:
        fresh.unlink(missing_ok=True)


def _shown(name):
    """A folder's name with the letters that matplotlib's own font has; others escaped."""
    return Path(name).name.encode("latin-1", "backslashreplace").decode("latin-1")
