"""Words of the command about text and corpora: inspect, prepare, verify."""

import click

from .options import COUNT, FOLDER, as_json, building, overwrite, quiet, splitting, threads
from .output import Reading, remark, show_json


@click.command(short_help="What is in a text, on one page.")
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@click.option("--plot", type=FOLDER, help="Draw counts against ranks to this .png or .svg file.")
@click.option(
    "--context", type=COUNT, default=4, show_default=True, help="Of the models whose size is told."
)
@splitting
@as_json
@quiet
def inspect(text, plot, context, as_json, quiet, **choices):
    """Describe TEXT before anything is trained on it: files, globs, - for standard input.

    Its encoding and where it breaks, line ends, blank and duplicate lines, longest lines and
    words, control characters, scripts, simplified and traditional Chinese, how often words occur,
    what a min_count would keep and cost, and what to do about what was found.

    \b
    fastnplm inspect corpus.txt
    fastnplm inspect corpus.txt.gz more/*.txt --json
    fastnplm inspect corpus.txt --plot ranks.png
    """
    from ..inspection import MIN_COUNTS
    from ..inspection import inspect as look
    from ..page import page
    from ..plot import check_name, draw_ranks
    from ..text import TextSettings

    if plot is not None:
        check_name(plot)
    given = {name: value for name, value in choices.items() if value is not None}
    progress = Reading(quiet)
    try:
        found = look(*text, settings=TextSettings(**given), context=context, progress=progress)
    finally:
        progress.close()
    if plot is not None:
        draw_ranks(found.frequencies, plot, MIN_COUNTS)
    if as_json:
        show_json(found.as_dict())
    else:
        click.echo(page(found))


@click.command(short_help="Encode text once, for many runs.")
@click.argument("text", nargs=-1, required=True, type=FOLDER)
@click.option("-o", "--out", required=True, type=FOLDER, help="Folder to write.")
@click.option(
    "--vocabulary", type=FOLDER, help="Use the words of this model, corpus or vocabulary.tsv."
)
@building
@threads
@overwrite
@as_json
@quiet
def prepare(text, out, vocabulary, overwrite, as_json, quiet, **choices):
    """Encode TEXT (files, globs, - for standard input; plain or compressed) into a corpus folder.

    The folder holds the vocabulary and the text as a stream of word ids, mapped into memory when
    it is used: it may be larger than memory. Words are counted exactly whatever --memory allows;
    what does not fit is counted on disk, which the report tells, and takes longer.

    \b
    fastnplm prepare corpus.txt.gz more/*.txt -o corpus --min-count 3
    zcat dump.gz | fastnplm prepare - -o corpus --memory 512MiB --threads 2
    fastnplm prepare valid.txt -o valid --vocabulary corpus
    """
    from ..corpus import Corpus
    from ..errors import SettingsError
    from .text import describe

    known = None if vocabulary is None else _vocabulary(vocabulary)
    if known is not None:
        for option in ("min_count", "max_vocab"):
            if choices[option] is not None:
                name = option.replace("_", "-")
                raise SettingsError(f"--{name} has no effect: the words are those of {vocabulary}")
    given = {name: value for name, value in choices.items() if value is not None}
    progress = Reading(quiet)
    try:
        corpus = Corpus.prepare(
            *text, out=out, vocabulary=known, overwrite=overwrite, progress=progress, **given
        )
    finally:
        progress.close()
    with corpus:
        if as_json:
            report = {"out": out, "tokens": len(corpus), "vocabulary": len(corpus.vocabulary)}
            show_json(report | vars(corpus.report))
        else:
            remark(f"{out}: {describe(corpus)}", quiet)


def _vocabulary(path):
    from pathlib import Path

    from ..folder import find_folder
    from ..header import VOCABULARY_NAME
    from ..vocabulary import Vocabulary

    place = Path(path)
    return Vocabulary.load(place if place.is_file() else find_folder(place) / VOCABULARY_NAME)


@click.command(short_help="Check every byte of a corpus or model.")
@click.argument("folders", nargs=-1, required=True, type=FOLDER)
@quiet
def verify(folders, quiet):
    """Compare each of FOLDERS (corpora, models) with the checksums written with it.

    \b
    fastnplm verify corpus model
    """
    from pathlib import Path

    from ..corpus import Corpus
    from ..folder import check_folder, find_folder
    from ..header import HEADER_NAME
    from ..loading import load

    for folder in folders:
        if (Path(folder) / HEADER_NAME).is_file():
            with Corpus.open(folder) as corpus:
                corpus.verify()
                remark(f"{folder}: a whole corpus of {len(corpus):,} tokens", quiet)
        else:
            check_folder(find_folder(folder))
            load(folder)
            remark(f"{folder}: a whole model", quiet)
