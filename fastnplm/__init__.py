"""fastnplm: feed-forward neural probabilistic language models on an ordinary CPU.

corpus = fastnplm.Corpus.prepare("corpus.txt")
model = fastnplm.NPLM(corpus.vocabulary, context=4, dim=100, hidden=200)
fastnplm.train(model, corpus, valid="valid.txt", out="model/")
fastnplm.evaluate(model, "test.txt").perplexity
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .blend import Blend
    from .corpus import Corpus
    from .errors import Error
    from .evaluation import Report, evaluate
    from .loading import load
    from .loss import NCE, NegativeSampling, Softmax
    from .mixture import Mixture
    from .ngram import NGram
    from .nplm import NPLM
    from .optimizer import Optimizer
    from .plan import Settings
    from .schedule import Schedule
    from .step import Step
    from .training import History, train
    from .vocabulary import Vocabulary

__all__ = [
    "NCE",
    "NPLM",
    "Blend",
    "Corpus",
    "Error",
    "History",
    "Mixture",
    "NGram",
    "NegativeSampling",
    "Optimizer",
    "Report",
    "Schedule",
    "Settings",
    "Softmax",
    "Step",
    "Vocabulary",
    "__version__",
    "evaluate",
    "load",
    "train",
]

# Where each public name lives. It is imported when it is first asked for, so that the command
# answers --help before NumPy is loaded.
_HOMES = {
    "NCE": "loss",
    "NPLM": "nplm",
    "Blend": "blend",
    "Corpus": "corpus",
    "Error": "errors",
    "History": "training",
    "Mixture": "mixture",
    "NGram": "ngram",
    "NegativeSampling": "loss",
    "Optimizer": "optimizer",
    "Report": "evaluation",
    "Schedule": "schedule",
    "Settings": "plan",
    "Softmax": "loss",
    "Step": "step",
    "Vocabulary": "vocabulary",
    "evaluate": "evaluation",
    "load": "loading",
    "train": "training",
}


def __getattr__(name):
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
