"""The rows: on which corpus what is trained how, and what the papers print."""

import dataclasses
import json
from pathlib import Path

import fastnplm
from fastnplm import loss as losses

PARTS = ("train", "valid", "test")
SIZES = frozenset({"context", "dim", "hidden", "direct", "layers", "tied", "hashed"})

# Brown has its rare words replaced in the files, PTB in the edition; PKU's are left to min_count.
CORPORA = {
    "brown": ("brown/brown.mapped.{}.txt.gz", 1),
    "ptb": ("ptb/ptb.{}.txt.gz", 1),
    "pku": ("pku199801/pku.{}.txt.gz", 4),
}

# lmplz -o 3|5 --discount_fallback on the same text, <unk> renamed: (valid, test) perplexity.
KENLM = {
    "brown": {3: (156.93, 147.69), 5: (156.01, 146.73)},
    "ptb": {3: (157.77, 148.28), 5: (148.01, 141.19)},
    "pku": {3: (266.56, 235.12), 5: (259.56, 227.25)},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table.

    corpus : key of CORPORA; size : what NPLM takes; settings : what ``train`` takes
    published, published_mixture : test perplexity in the paper (or None); source : which paper
    """

    corpus: str
    size: dict
    settings: dict
    published: float | None = None
    published_mixture: float | None = None
    source: str = ""

    def changed(self, changes):
        """This row with some of its sizes or settings changed: ``{"dim": 50}``."""
        known = SIZES | {field.name for field in dataclasses.fields(fastnplm.Settings)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise SystemExit(
                f"no setting {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        size, settings = split(changes)
        size, settings = self.size | size, self.settings | settings
        if isinstance(settings.get("schedule"), dict):  # from the command line
            settings["schedule"] = fastnplm.Schedule(**settings["schedule"])
        return dataclasses.replace(self, size=size, settings=settings)


def split(changes):
    """What ``NPLM`` takes of a dict of sizes and settings, and what ``train`` takes."""
    size = {name: value for name, value in changes.items() if name in SIZES}
    return size, {name: value for name, value in changes.items() if name not in SIZES}


def plain(settings):
    """Settings as JSON values."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value):
    if isinstance(value, tuple(losses.LOSSES.values())):
        return losses.to_config(value)
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def logged(plan, hashed=0):
    """Settings of which nothing is left open, as JSON holds them; hashed : of the model."""
    settings = plan.identity(hashed) | {"loss": plan.loss, "epochs": plan.epochs}
    return json.loads(json.dumps(plain(settings)))


def texts(corpus, data):
    """The files of a corpus below ``data``, by part, and its min_count."""
    pattern, min_count = CORPORA[corpus]
    return {part: Path(data) / pattern.format(part) for part in PARTS}, min_count


def _bengio(published, mixture, context=4, **size):
    # Plain descent with the paper's rate schedule and weight decay. The paper steps after every
    # word with rate 1e-3; a step here is the mean over 64 words, so its rate is 64 times as large
    # (0.064), and larger yet, since the passes are fewer than the paper's 10 to 20.
    settings = {
        "optimizer": "sgd",
        "lr": 0.5,
        "schedule": fastnplm.Schedule("inverse", decay_rate=5e-5),
        "weight_decay": 1e-4,
        "batch_size": 64,
        "dropout": 0.0,
        "input_dropout": 0.0,
        "average": 0.0,
        "epochs": 5,
        "precision": "bf16",
    }
    size = {"context": context} | size
    return Row("brown", size, settings, published, mixture, "Bengio et al. 2003, table 1")


# Plain momentum at a high rate that falls, its weights averaged, goes further on these corpora than
# Adam (docs/perplexity.md): a rate 10 times as high in effect, since momentum sums gradients.
_MOMENTUM = {
    "optimizer": "momentum",
    "lr": 0.15,
    "weight_decay": 5e-4,
    "batch_size": 128,
    "dropout": 0.25,
    "input_dropout": 0.15,
    "average": 0.2,
    "schedule": fastnplm.Schedule("cosine", floor=0.05),
    "precision": "bf16",
}

ROWS = {
    "MLP1": _bengio(268, 257, hidden=50, dim=60, direct=True),
    "MLP3": _bengio(310, 272, hidden=0, dim=60, direct=True),
    "MLP5": _bengio(279, 259, hidden=50, dim=30, direct=True),
    "MLP7": _bengio(293, 270, context=2, hidden=50, dim=30, direct=True),
    "MLP9": _bengio(276, 252, hidden=100, dim=30),
    # The paper's first network, trained as ``train`` does when nothing is said.
    "MLP1-defaults": Row(
        "brown",
        {"context": 4, "hidden": 50, "dim": 60, "direct": True},
        {"precision": "bf16"},
        268,
        257,
        "Bengio et al. 2003, table 1",
    ),
    "brown-best": Row(
        "brown",
        {"context": 8, "dim": 150, "hidden": 300, "tied": True, "direct": True},
        _MOMENTUM | {"epochs": 8},
    ),
    "ptb-best": Row(
        "ptb",
        {"context": 6, "dim": 150, "hidden": 300, "tied": True, "direct": True},
        _MOMENTUM | {"epochs": 10},
        140.2,
        116.7,
        "Mikolov 2012 (thesis): feed-forward network, and mixed with Kneser-Ney",
    ),
    "pku-best": Row(
        "pku",
        {"context": 6, "dim": 150, "hidden": 300, "tied": True, "direct": True},
        _MOMENTUM | {"epochs": 8},
    ),
}
# The best of each with hashed n-grams, which learn by heart sooner: fewer epochs.
_HASHED = {"hashed": 400_000, "epochs": 6}
for _name in CORPORA:
    _row = ROWS[f"{_name}-best"].changed(_HASHED)
    # What is published is of networks without n-grams.
    ROWS[f"{_name}-hashed"] = dataclasses.replace(
        _row, published=None, published_mixture=None, source=""
    )
