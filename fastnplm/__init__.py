"""fastnplm: feed-forward neural probabilistic language models on an ordinary CPU.

corpus = fastnplm.Corpus.prepare("corpus.txt")
model = fastnplm.NPLM(corpus.vocabulary, context=4, dim=100, hidden=200)
fastnplm.train(model, corpus, valid="valid.txt", out="model/")
fastnplm.evaluate(model, "test.txt").perplexity
"""

from .corpus import Corpus
from .errors import Error
from .evaluation import Report, evaluate
from .loading import load
from .loss import NCE, NegativeSampling, Softmax
from .mixture import Mixture
from .ngram import NGram
from .nplm import NPLM
from .optimizer import Optimizer
from .schedule import Schedule
from .step import Step
from .training import History, train
from .version import __version__
from .vocabulary import Vocabulary

__all__ = [
    "NCE",
    "NPLM",
    "Corpus",
    "Error",
    "History",
    "Mixture",
    "NGram",
    "NegativeSampling",
    "Optimizer",
    "Report",
    "Schedule",
    "Softmax",
    "Step",
    "Vocabulary",
    "__version__",
    "evaluate",
    "load",
    "train",
]
