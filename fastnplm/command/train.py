"""The word ``train``."""

import dataclasses

import click

from .options import (
    COUNT,
    FOLDER,
    READING,
    SHARE,
    as_json,
    building,
    computing,
    options,
    overwrite,
    quiet,
)
from .output import remark, show_json

SIZES = {"context": 4, "dim": 100, "hidden": 200, "layers": 1, "hashed": 0}
FORMS = ("direct", "tied")

_size = options(
    click.option(
        "--context", type=COUNT, help="Words read before the predicted one.  [default: 4]"
    ),
    click.option("--dim", type=COUNT, help="Width of a word's vector.  [default: 100]"),
    click.option("--hidden", type=COUNT, help="Units of the tanh layer.  [default: 200]"),
    click.option(
        "--direct/--no-direct",
        default=None,
        help="Connect vectors to scores too; if tied, to the projection."
        "  [default: both, if neither is said; else off]",
    ),
    click.option("--layers", type=click.IntRange(1, 2), help="Hidden layers.  [default: 1]"),
    click.option(
        "--tied/--no-tied",
        default=None,
        help="The scores use the words' vectors too."
        "  [default: both, if neither is said; else off]",
    ),
    click.option(
        "--hashed",
        type=click.IntRange(0, 2**31 - 1),
        help="Rows of a table for hashed pairs and triples of words, such as 200000; needs a"
        " context of at least 3.  [default: none]",
    ),
    click.option("--init", type=FOLDER, help="Start from this model, with its words and sizes."),
    click.option(
        "--init-vectors", type=FOLDER, help="Word vectors to start with: a file of word2vec's form."
    ),
)
_loss = options(
    click.option(
        "--loss",
        type=click.Choice(["softmax", "ns", "nce"]),
        help="Exact softmax, negative sampling, noise-contrastive estimation."
        "  [default: softmax up to 50,000 words, then nce with 512 negatives shared by 128]",
    ),
    click.option("--negatives", type=COUNT, help="Noise words an example.  [default: 10]"),
    click.option("--power", type=float, help="Noise follows count ** power.  [default: 0.75]"),
    click.option("--shared", type=COUNT, help="Examples that share noise.  [default: by K]"),
)
_descent = options(
    click.option(
        "--optimizer",
        type=click.Choice(["sgd", "momentum", "adagrad", "rmsprop", "adam"]),
        help="[default: momentum for the exact softmax, adam for a sampled loss]",
    ),
    click.option("--lr", type=float, help="Of the optimiser, whichever it is.  [default: its own]"),
    click.option(
        "--schedule",
        type=click.Choice(["constant", "inverse", "linear", "cosine", "plateau"]),
        help="Of the learning rate.  [default: cosine, or constant for a sampled loss on a large "
        "text]",
    ),
    click.option("--warmup", type=SHARE, help="Share of the run in which the rate rises."),
    click.option(
        "--floor", type=click.FloatRange(0, 1), help="Last rate, as a share of the first."
    ),
    click.option("--batch-size", type=COUNT, help="Examples a step.  [default: by the size]"),
    click.option("--epochs", type=COUNT, help="Passes over the text.  [default: by its size]"),
    click.option("--patience", type=COUNT, help="Stop after so many epochs without improvement."),
    click.option(
        "--dropout", type=SHARE, help="Of hidden units.  [default: by the size of the text]"
    ),
    click.option(
        "--input-dropout", type=SHARE, help="Of vectors' elements.  [default: by the size]"
    ),
    click.option("--word-dropout", type=SHARE, default=0.0, help="Share of words read as <unk>."),
    click.option(
        "--output-dropout", type=SHARE, default=0.0, help="Of units below a tied model's scores."
    ),
    click.option(
        "--hashed-lr",
        type=click.FloatRange(min=0, min_open=True),
        help="Rate of hashed n-grams.  [default: 0.15]",
    ),
    click.option("--hashed-dropout", type=SHARE, help="Share of them left out.  [default: 0.6]"),
    click.option("--clip", type=click.FloatRange(min=0), help="Largest norm of a gradient."),
    click.option("--label-smoothing", type=SHARE, default=0.0, help="Share of targets spread out."),
    click.option(
        "--average",
        type=SHARE,
        help="Keep a mean of the weights over this share of the run."
        "  [default: 0.2; 0: the last weights]",
    ),
    click.option(
        "--weight-decay",
        type=click.FloatRange(min=0),
        help="Decoupled; of weights.  [default: 5e-4 where no optimiser is named for the softmax]",
    ),
    click.option("--l1", type=click.FloatRange(min=0), help="L1 penalty, of weights."),
)
_run = options(
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
    computing,
    click.option(
        "--precision",
        type=click.Choice(["float32", "bf16"]),
        default="float32",
        show_default=True,
        help="Of the matrix products; bf16 is faster where the processor has it.",
    ),
    click.option(
        "--buffer-mib",
        type=click.FloatRange(min=0),
        default=256,
        show_default=True,
        help="Room for the scores of a batch.",
    ),
    click.option("--checkpoint-every", help="Batches, or a time such as 10m."),
    click.option("--resume", is_flag=True, help="Go on from the newest checkpoint, if any."),
    click.option("--dry-run", is_flag=True, help="Show what it takes of memory and disk; stop."),
    overwrite,
)


@click.command(short_help="Train a model on text.")
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@click.option("-o", "--out", required=True, type=FOLDER, help="Model folder to write.")
@click.option(
    "--blend",
    is_flag=True,
    help="TEXT are prepared corpora with weights: each has its share of every epoch.",
)
@click.option(
    "--valid", multiple=True, type=FOLDER, help="Validation text; the best epoch is kept."
)
@_size
@_loss
@_descent
@_run
@building
@as_json
@quiet
def train(text, out, blend, valid, init, dry_run, as_json, quiet, **choices):
    """Train a model on TEXT: files, globs, - for standard input, or a prepared corpus folder.

    The exact perplexity on the validation text is shown after each epoch, and the weights of the
    best epoch are kept. Ctrl-C stops between two batches.

    \b
    fastnplm train corpus.txt -o model --valid valid.txt
    fastnplm train corpus -o model --loss ns --negatives 10
    fastnplm train more.txt -o model2 --init model
    fastnplm train --blend news.corpus:0.7 chat.corpus:0.3 -o model
    fastnplm train corpus -o model --checkpoint-every 10m
    fastnplm train corpus -o model --checkpoint-every 10m --resume
    fastnplm train corpus -o model --hidden 500 --dry-run
    """
    import contextlib

    from .. import estimate, hashing, plan, training
    from .text import blended, check_readable, describe, is_prepared, opened

    settings = _settings(choices) | {"out": out}
    # Everything that can be refused is refused here, before the text is read.
    checked = plan.check(valid=valid or None, **settings)
    for paths in (() if blend else text, valid):
        if paths:
            check_readable(paths)
    model, sizes = _initial(init, choices), network_sizes(choices)
    if model is None:
        hashing.require_table(sizes["hashed"], sizes["context"], sizes["hidden"])
    hashed = sizes["hashed"] if model is None else model.hashed
    hashing.require_n_grams(hashed, checked.hashed_lr, checked.hashed_dropout)
    with contextlib.ExitStack() as stack:
        if blend:
            corpus = stack.enter_context(blended(text, choices, model, init, out, quiet))
        else:
            corpus = stack.enter_context(opened(text, choices, model, init, quiet))
            remark(f"corpus: {describe(corpus)}", quiet)
        # Memory is given to the parameters only when it is known to be enough.
        outline = model or estimate.Outline(corpus.vocabulary, **sizes)
        held_out = None
        if valid:
            # Validation text becomes words as the training text did: the vocabulary says how.
            names = ("threads",) if is_prepared(valid) else ("threads", *READING)
            reading = {name: choices[name] for name in names}
            held_out = stack.enter_context(opened(valid, reading, outline, init or text[0], quiet))
        fitted = checked.fitted(len(corpus), len(outline.vocabulary))
        needs = estimate.of_run(outline, fitted, corpus, held_out)
        if dry_run:
            _show(needs, as_json)
        needs.require()
        if dry_run:
            return
        remark(f"training: {plan.told(fitted, outline.hashed)}", quiet)
        if model is None:
            model = _fresh(corpus.vocabulary, choices)
        history = training.train(model, corpus, valid=held_out, quiet=quiet, **settings)
    _report(history, out, as_json, quiet)


def _settings(choices):
    """The arguments of ``training.train`` that options give: names become objects."""
    from ..errors import SettingsError
    from ..loss import resolve
    from ..plan import Settings
    from ..schedule import Schedule

    loss = choices["loss"]
    noise = {name: choices[name] for name in ("negatives", "power", "shared")}
    changes = {name: value for name, value in noise.items() if value is not None}
    if loss is None and changes:
        raise SettingsError(
            f"--{next(iter(changes))} is of a sampled loss, and none is named;"
            " pass --loss ns or nce"
        )
    if loss is not None:
        loss = resolve(loss)
        if loss.name != "softmax":
            loss = dataclasses.replace(loss, **changes)
    schedule = None
    if any(choices[name] is not None for name in ("schedule", "warmup", "floor")):
        schedule = Schedule(
            choices["schedule"] or "cosine",
            warmup=choices["warmup"] or 0.0,
            floor=choices["floor"] or 0.0,
        )
    names = {field.name for field in dataclasses.fields(Settings)} & set(choices)
    return {name: choices[name] for name in names - {"negatives"}} | {
        "loss": loss,
        "schedule": schedule,
    }


def _initial(init, choices):
    """The model of ``--init``, or None; sizes given beside it must be its own."""
    from ..errors import SettingsError
    from ..nplm import NPLM

    if init is None:
        return None
    model = NPLM.load(init)
    for name in SIZES:
        if choices[name] not in (None, getattr(model, name)):
            raise SettingsError(
                f"--{name} is {choices[name]}, but {init} has {name} {getattr(model, name)};"
                " leave it out"
            )
    for name in FORMS:
        if choices[name] not in (None, getattr(model, name)):
            said = f"--{name}" if choices[name] else f"--no-{name}"
            raise SettingsError(f"{init} was not made with {said}; leave it out")
    return model


def network_sizes(choices):
    """What ``NPLM`` takes, from options of which None were not given."""
    sizes = {name: choices[name] or default for name, default in SIZES.items()}
    # What nothing is said about is the form that is better and smaller (docs/perplexity.md).
    best = all(choices[name] is None for name in FORMS)
    return sizes | {name: best or bool(choices[name]) for name in FORMS}


def _fresh(vocabulary, choices):
    from ..nplm import NPLM

    return NPLM(vocabulary, **network_sizes(choices), seed=choices["seed"])


def _show(needs, as_json):
    if as_json:
        show_json(needs.as_dict())
        return
    for line in needs.lines():
        click.echo(line)


def _report(history, out, as_json, quiet):
    if as_json:
        show_json(
            {
                "out": out,
                "updates": history.updates,
                "best_epoch": history.best_epoch,
                "epochs": history.epochs,
            }
        )
        return
    best = history.epochs[history.best_epoch - 1]
    text = f"{out}: epoch {history.best_epoch}"
    if "valid_perplexity" in best:
        text += f" is the best, valid perplexity {best['valid_perplexity']:.2f}"
    remark(f"{text}, {history.updates:,} updates", quiet)
