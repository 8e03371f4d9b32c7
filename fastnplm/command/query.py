"""Words of the command that ask a model: predict, generate, neighbors, analogy."""

import click

from .options import COUNT, FOLDER, WORDS, as_json, quiet
from .output import show_json

_k = click.option("-k", type=COUNT, default=5, show_default=True, help="How many.")


@click.command(short_help="The likeliest next words.")
@click.argument("model", type=FOLDER)
@click.argument("text", type=WORDS, default="")
@_k
@click.option("--unk", is_flag=True, help="Offer <unk> too.")
@as_json
@quiet
def predict(model, text, k, unk, as_json, quiet):
    """Print the likeliest words after TEXT, the beginning of a sentence.

    \b
    fastnplm predict model "我 今天 想" -k 5
    fastnplm predict model "the cat sat on the" --json
    """
    from ..loading import load

    found = load(model).predict(text, k=k, unk=unk)
    if as_json:
        show_json([{"word": word, "probability": share} for word, share in found])
        return
    for word, share in found:
        click.echo(f"{share:.6f}  {word}")


@click.command(short_help="Draw text from a model.")
@click.argument("model", type=FOLDER)
@click.option("--prompt", type=WORDS, default="", help="Words the text begins with.")
@click.option("--length", type=click.IntRange(min=0), default=50, show_default=True)
@click.option(
    "--temperature", type=float, default=1.0, show_default=True, help="0: the likeliest; inf: any."
)
@click.option("--top-k", type=int, help="Draw among the k likeliest words.")
@click.option("--top-p", type=float, help="Draw among the fewest words that hold this share.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-n", "--count", type=COUNT, default=1, show_default=True, help="How many texts.")
@as_json
@quiet
def generate(model, prompt, length, temperature, top_k, top_p, seed, count, as_json, quiet):
    """Print words drawn one by one after the prompt, until </s> or --length words.

    The text is a function of the seed; with --count the seeds count up from it.

    \b
    fastnplm generate model --prompt "the cat" --temperature 0.8 --top-k 40 --seed 1
    """
    from ..errors import ModelError
    from ..loading import load

    drawn = load(model)
    if not hasattr(drawn, "generate"):
        raise ModelError(f"{model} is no network; generate draws from networks")
    for number in range(count):
        words = drawn.generate(prompt, length, temperature, top_k, top_p, seed + number)
        if as_json:
            show_json({"prompt": prompt, "words": words, "seed": seed + number})
        else:
            click.echo(" ".join([prompt.strip(), *words] if prompt.strip() else words))


@click.command(short_help="Words with similar vectors.")
@click.argument("model", type=FOLDER)
@click.argument("words", nargs=-1, required=True, type=WORDS)
@click.option("-k", type=COUNT, default=10, show_default=True, help="How many.")
@as_json
@quiet
def neighbors(model, words, k, as_json, quiet):
    """Print the words whose vectors have the highest cosine to that of WORDS (their sum).

    \b
    fastnplm neighbors model 咖啡 -k 10
    """
    _show(_vectors(model).most_similar(list(words), topn=k), as_json)


@click.command(short_help="What is to C as B is to A.")
@click.argument("model", type=FOLDER)
@click.argument("words", nargs=3, type=WORDS, metavar="A B C")
@_k
@as_json
@quiet
def analogy(model, words, k, as_json, quiet):
    """Print what is to C as B is to A, by the vectors B - A + C.

    \b
    fastnplm analogy model man king woman
    """
    _show(_vectors(model).analogy(*words, topn=k), as_json)


def _vectors(folder):
    from ..errors import ModelError
    from ..loading import load

    model = load(folder)
    if not hasattr(model, "vectors"):
        raise ModelError(f"{folder} has no word vectors: it is no network")
    return model.vectors


def _show(found, as_json):
    if as_json:
        show_json([{"word": word, "similarity": cosine} for word, cosine in found])
        return
    for word, cosine in found:
        click.echo(f"{cosine:.6f}  {word}")
