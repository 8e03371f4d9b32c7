"""Words of the command about count models: ngram, mix."""

import click

from .options import FOLDER, as_json, building, overwrite, quiet, threads
from .output import remark, show_json


@click.command(short_help="Count and smooth n-grams.")
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@click.option("-o", "--out", required=True, type=FOLDER, help="Model folder to write.")
@click.option("--order", type=click.IntRange(1, 64), default=5, show_default=True)
@click.option(
    "--smoothing",
    type=click.Choice(["kneser-ney", "katz", "add-one"]),
    default="kneser-ney",
    show_default=True,
)
@click.option("--arpa", is_flag=True, help="TEXT is an ARPA file of any toolkit to read instead.")
@click.option("--vocabulary", type=FOLDER, help="Use the words of this model.")
@building
@threads
@overwrite
@as_json
@quiet
def ngram(text, out, order, smoothing, arpa, vocabulary, overwrite, as_json, quiet, **choices):
    """Estimate an n-gram model from TEXT (files or a prepared corpus folder).

    Interpolated modified Kneser-Ney gives the probabilities of KenLM. The model answers evaluate,
    score and predict as a network does, and mix joins it with one.

    \b
    fastnplm ngram corpus -o kn --order 5
    fastnplm ngram corpus.txt -o kn --vocabulary model
    fastnplm ngram other.arpa --arpa -o other
    """
    from ..errors import SettingsError
    from ..loading import load
    from ..ngram import NGram
    from ..storage import check_output
    from .text import check_readable, describe, opened

    check_output(out, overwrite=overwrite)
    check_readable(text)
    known = None if vocabulary is None else load(vocabulary)
    if arpa:
        if len(text) > 1:
            raise SettingsError(f"--arpa reads one file, not {len(text)}")
        model = NGram.read_arpa(text[0], None if known is None else known.vocabulary)
    else:
        with opened(text, choices, known, vocabulary, quiet) as corpus:
            remark(f"corpus: {describe(corpus)}", quiet)
            model = NGram.train(corpus, order=order, smoothing=smoothing)
    model.save(out, overwrite=overwrite)
    sizes = [len(keys) for keys in model.backoff.keys]
    if as_json:
        show_json({"out": out, "order": model.order, "smoothing": model.smoothing, "ngrams": sizes})
    else:
        remark(f"{out}: {' + '.join(f'{size:,}' for size in sizes)} n-grams", quiet)


@click.command(short_help="Mix models.")
@click.argument("models", nargs=-1, required=True, type=FOLDER)
@click.option("--tune", multiple=True, required=True, type=FOLDER, help="Text to find weights on.")
@click.option("-o", "--out", required=True, type=FOLDER, help="Model folder to write.")
@click.option(
    "--weights",
    type=click.Choice(["fixed", "context"]),
    default="fixed",
    show_default=True,
    help="One weight a model, or by how often the context was seen.",
)
@overwrite
@as_json
@quiet
def mix(models, tune, out, weights, overwrite, as_json, quiet):
    """Mix MODELS of one vocabulary with the weights that suit the --tune text best.

    \b
    fastnplm mix model kn --tune valid.txt -o mixed
    fastnplm evaluate mixed test.txt
    """
    from ..loading import load
    from ..mixture import Mixture
    from ..storage import check_output
    from .text import check_readable, opened

    check_output(out, overwrite=overwrite)
    check_readable(tune)
    members = [load(model) for model in models]
    with opened(tune, {}, members[0], models[0], quiet) as corpus:
        mixture = Mixture.tune(members, corpus, weights=weights)
    mixture.save(out, overwrite=overwrite)
    if as_json:
        show_json({"out": out, "models": list(models), "weights": mixture.weights.tolist()})
    elif weights == "fixed":
        shares = (
            f"{model} {share:.4f}" for model, share in zip(models, mixture.weights[0], strict=True)
        )
        remark(f"{out}: {', '.join(shares)}", quiet)
    else:
        remark(f"{out}: weights of {len(models)} models for {len(mixture.weights)} bins", quiet)
