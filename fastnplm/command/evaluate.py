"""Words of the command that judge text: evaluate, score."""

import click

from .options import FOLDER, READING, as_json, computing, kernels, quiet, reading
from .output import remark, show_json

LINES = 2000  # scored together


@click.command(short_help="Exact perplexity of a text.")
@click.argument("model", type=FOLDER)
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@computing
@reading
@as_json
@quiet
def evaluate(model, text, threads, kernels, as_json, quiet, **choices):
    """Print the exact perplexity of TEXT (files or a prepared corpus folder) under MODEL.

    Perplexity is exp(nats / tokens) with the softmax over the whole vocabulary, whatever loss
    trained the model; tokens are the words and one </s> a line, unknown words scored as <unk>.

    \b
    fastnplm evaluate model test.txt
    fastnplm evaluate model test.txt --json
    """
    from ..evaluation import evaluate as judge
    from ..loading import load
    from .text import check_readable, opened

    check_readable(text)
    judged = load(model)
    with opened(text, choices | {"threads": threads}, judged, model, quiet) as corpus:
        report = judge(judged, corpus, threads=threads, kernels=kernels)
    if as_json:
        show_json(report.as_dict())
        return
    known = report.tokens - report.oov
    click.echo(f"perplexity              {report.perplexity:.4f}  ({report.tokens:,} tokens)")
    click.echo(f"perplexity without oov  {report.perplexity_without_oov:.4f}  ({known:,} tokens)")
    click.echo(f"tokens                  {report.tokens:,}  (words and one </s> a sentence)")
    click.echo(f"sentences               {report.sentences:,}")
    click.echo(f"oov                     {report.oov:,}  ({report.oov / report.tokens:.2%})")
    click.echo(f"nats                    {report.nats:.4f}  (natural logarithm)")
    if report.log_normalizer_mean is not None:
        click.echo(
            f"log Z of raw scores     {report.log_normalizer_mean:.4f} mean,"
            f" {report.log_normalizer_spread:.4f} standard deviation"
        )
    if report.perplexity_uncorrected is not None:
        click.echo(f"without the correction  {report.perplexity_uncorrected:.4f}")


@click.command(short_help="A probability for each line of a text.")
@click.argument("model", type=FOLDER)
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--unnormalized",
    is_flag=True,
    help="Raw scores in log10 at a cost independent of the vocabulary: not probabilities.",
)
@kernels
@reading
@as_json
@quiet
def score(model, text, unnormalized, kernels, as_json, quiet, **choices):
    """Print log10 of the probability of each line of TEXT, </s> counted, as KenLM does.

    Every line has its answer, a blank one too: an empty sentence is an </s>.

    \b
    fastnplm score model sentences.txt
    fastnplm score model sentences.txt --json
    echo "the cat sat" | fastnplm score model -
    """
    from itertools import islice

    from ..errors import ModelError
    from ..loading import load
    from ..text import read_sentences
    from .text import check_readable

    check_readable(text)
    judge = load(model)
    if unnormalized and not hasattr(judge, "raw_score"):
        raise ModelError(f"{model} is no network: its scores are normalised always")
    given = {name: choices[name] for name in READING}
    settings = judge.vocabulary.settings.with_choices(**given)
    sentences = read_sentences(*text, settings=settings)
    name = "log10_score" if unnormalized else "log10_probability"
    while lines := list(islice(sentences, LINES)):
        found = _raw(judge, lines, kernels) if unnormalized else _log10(judge, lines, kernels)
        for words, value in zip(lines, found, strict=True):
            if as_json:
                oov = sum(word not in judge.vocabulary for word in words)
                show_json({name: float(value), "tokens": len(words) + 1, "oov": oov})
            else:
                click.echo(f"{value:.6f}")
    if unnormalized:
        remark("raw scores: evaluate tells the mean and spread of their log Z", quiet)


def _log10(model, lines, kernels):
    """log10 p of each sentence (a list of words), float64."""
    import numpy as np

    from ..nplm import NPLM

    end = model.vocabulary.end_id
    tokens = [np.append(model.vocabulary.encode(words), end) for words in lines]
    options = {"kernels": kernels} if isinstance(model, NPLM) else {}
    logs = model.log_probabilities(np.concatenate(tokens).astype(np.int32), **options)
    starts = np.cumsum([0, *map(len, tokens[:-1])])
    return np.add.reduceat(logs, starts) / np.log(10)


def _raw(model, lines, kernels):
    from ..query import raw_score

    return [raw_score(model, words, kernels) for words in lines]
