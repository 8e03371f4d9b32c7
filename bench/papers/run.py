"""Train a row, evaluate it alone and mixed with Kneser-Ney, and write what came out as JSON."""

import contextlib
import hashlib
import json
import resource
import time
from pathlib import Path

import fastnplm
from fastnplm.mixture import Mixture
from fastnplm.ngram import NGram

from .. import machine
from . import rows

ORDERS = (3, 5)


def run(name, row, data, output, seed=0, threads=None, test=True, quiet=False):
    """One row with one seed: trains (or goes on, after a stop), writes OUTPUT/NAME-seedS.json.

    test : False leaves the test part alone, for runs that choose settings
    Returns what the JSON holds.
    """
    output = Path(output)
    (output / "models").mkdir(parents=True, exist_ok=True)
    stem = f"{name}-seed{seed}"
    files, min_count = rows.texts(row.corpus, data)
    parts = ("valid", "test") if test else ("valid",)
    with contextlib.ExitStack() as stack:
        corpus = stack.enter_context(fastnplm.Corpus.prepare(files["train"], min_count=min_count))
        held_out = {
            part: stack.enter_context(
                fastnplm.Corpus.prepare(files[part], vocabulary=corpus.vocabulary)
            )
            for part in parts
        }
        plan = fastnplm.Settings(**row.settings, seed=seed).checked("valid")
        plan = plan.fitted(len(corpus.tokens), len(corpus.vocabulary))
        model = fastnplm.NPLM(corpus.vocabulary, **row.size, seed=seed)
        with _Clock(output / "models" / f"{stem}.clock.json") as clock:
            history = fastnplm.train(
                model, corpus, valid=held_out["valid"], seed=seed, threads=threads, quiet=quiet,
                out=output / "models" / stem, checkpoint_every="5m", resume=True, **row.settings,
            )  # fmt: skip
        found = {
            "row": name,
            "seed": seed,
            "corpus": row.corpus,
            "size": row.size,
            "settings": rows.plain(row.settings),
            "fitted": rows.logged(plan, model.hashed),
            "data": {part: _sha256(files[part]) for part in ("train", *parts)},
            "vocabulary": len(corpus.vocabulary),
            "parameters": sum(value.size for value in model.parameters.values()),
            "machine": machine.describe(),
            "threads": fastnplm.threads.resolve(threads),
            **clock.spent,
            "epochs": history.epochs,
            "best_epoch": history.best_epoch,
            "perplexity": evaluate(model, corpus, held_out),
        }
    (output / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def evaluate(model, corpus, held_out):
    """Perplexities of the model, of Kneser-Ney and of both mixed, on each part: nested dicts."""
    counts = {order: NGram.train(corpus, order=order) for order in ORDERS}
    judged = {"network": model} | {f"kneser-ney {n}": count for n, count in counts.items()}
    for weights in ("fixed", "context"):
        mixed = Mixture.tune([model, counts[max(ORDERS)]], held_out["valid"], weights)
        judged[f"mixture {weights}"] = mixed
    return {
        name: {part: fastnplm.evaluate(each, text).perplexity for part, text in held_out.items()}
        for name, each in judged.items()
    }


def ensemble(names, corpus, data, output, name=None):
    """Mix the saved models ``names`` (as ROW-seedS) of one corpus, with and without Kneser-Ney.

    Writes OUTPUT/NAME.json (None: CORPUS-ensemble) and returns what it holds.
    """
    output, name = Path(output), name or f"{corpus}-ensemble"
    files, min_count = rows.texts(corpus, data)
    members = [fastnplm.load(output / "models" / name) for name in names]
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(fastnplm.Corpus.prepare(files["train"], min_count=min_count))
        held_out = {
            part: stack.enter_context(
                fastnplm.Corpus.prepare(files[part], vocabulary=text.vocabulary)
            )
            for part in ("valid", "test")
        }
        count = NGram.train(text, order=max(ORDERS))
        judged = {
            "ensemble": Mixture.tune(members, held_out["valid"]),
            "mixture context": Mixture.tune([*members, count], held_out["valid"], "context"),
        }
        found = {
            "row": name,
            "corpus": corpus,
            "members": list(names),
            "perplexity": {
                name: {p: fastnplm.evaluate(each, t).perplexity for p, t in held_out.items()}
                for name, each in judged.items()
            },
        }
    (output / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


class _Clock:
    """Wall and processor time of a with-block, added to what earlier tries left in a file.

    So a row that was stopped and went on tells what it took in all.
    """

    def __init__(self, path):
        self._path = path
        self.spent = {"seconds": 0.0, "cpu_seconds": 0.0}

    def __enter__(self):
        if self._path.exists():
            self.spent = json.loads(self._path.read_text())
        self._began = {"seconds": time.perf_counter(), "cpu_seconds": _cpu_seconds()}
        return self

    def __exit__(self, *_):
        now = {"seconds": time.perf_counter(), "cpu_seconds": _cpu_seconds()}
        self.spent = {name: self.spent[name] + now[name] - self._began[name] for name in now}
        self._path.write_text(json.dumps(self.spent) + "\n")


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
