"""Words of the command that write other files: export, plot."""

import click

from .options import FOLDER, quiet
from .output import remark


@click.command(short_help="Write a model for other programs.")
@click.argument("model", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["word2vec", "arpa"]),
    required=True,
    help="Vectors of a network, or a count model's n-grams.",
)
@click.option("--binary", is_flag=True, help="word2vec's binary form.")
@quiet
def export(model, out, kind, binary, quiet):
    """Write the word vectors (word2vec) or the n-grams (arpa) of MODEL to the file OUT.

    \b
    fastnplm export model --format word2vec out.vec
    fastnplm export kn --format arpa out.arpa
    """
    from .. import word2vec
    from ..errors import ModelError
    from ..loading import load

    loaded = load(model)
    needed = "vectors" if kind == "word2vec" else "write_arpa"
    if not hasattr(loaded, needed):
        raise ModelError(f"{model} cannot be written as {kind}: it is a {type(loaded).__name__}")
    if kind == "word2vec":
        word2vec.write(loaded.vectors, out, binary=binary)
    else:
        loaded.write_arpa(out)
    remark(f"{out}: {len(loaded.vocabulary):,} words as {kind}", quiet)


@click.command(short_help="Draw learning curves.")
@click.argument("models", nargs=-1, required=True, type=FOLDER)
@click.option("-o", "--out", required=True, type=FOLDER, help="File to write: .png or .svg.")
@quiet
def plot(models, out, quiet):
    """Draw the perplexity after each epoch of MODELS, from their history.jsonl.

    \b
    fastnplm plot model -o curves.png
    fastnplm plot softmax ns nce -o losses.svg
    """
    from ..plot import draw

    draw(models, out)
    remark(f"{out}: the curves of {', '.join(models)}", quiet)
