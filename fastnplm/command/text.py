"""Text given on the command line, as a corpus: a prepared folder, or files encoded on the way."""

import os
from contextlib import ExitStack, contextmanager

from ..blend import Blend, parse_blend
from ..corpus import Corpus, require_same_vocabulary
from ..errors import SettingsError, TextError
from ..source import open_source, open_text
from .options import BUILDING, READING
from .output import Reading, remark


def is_prepared(paths):
    """Whether the paths are one folder: then it must be a prepared corpus."""
    return len(paths) == 1 and os.path.isdir(paths[0])


def check_readable(paths):
    """Meet a missing or unreadable file now, before any work; nothing is read yet."""
    if is_prepared(paths):
        Corpus.open(paths[0]).close()
        return
    files = [path for path in paths if path != "-"]
    if files:
        with open_source(*files) as source:
            for path in source.paths:
                with open_text(path):
                    pass


@contextmanager
def opened(paths, choices, model=None, name=None, quiet=False):
    """A Corpus of the text at ``paths`` while a with-block lasts.

    choices : dict of the options of ``building``, ``reading`` and ``threads``, None where not given
    model : text is encoded with its vocabulary; name : what to call it in an error
    """
    given = {key: choices.get(key) for key in (*BUILDING, *READING)}
    threads = choices.get("threads")
    given = {key: value for key, value in given.items() if value is not None}
    if is_prepared(paths):
        if given:
            option = next(iter(given)).replace("_", "-")
            raise SettingsError(
                f"--{option} has no effect on {paths[0]}, which is a prepared corpus; leave it"
                " out, or prepare the text again with it"
            )
        with Corpus.open(paths[0]) as corpus:
            if model is not None:
                require_same_vocabulary(corpus, model.vocabulary, (str(paths[0]), str(name)))
            yield corpus
        return
    vocabulary = None if model is None else model.vocabulary
    counting = [key for key in ("min_count", "max_vocab") if key in given]
    if vocabulary is not None and counting:
        option = counting[0].replace("_", "-")
        raise SettingsError(f"--{option} has no effect: the words are those of {name}")
    progress = Reading(quiet)
    try:
        corpus = Corpus.prepare(
            *paths, vocabulary=vocabulary, threads=threads, progress=progress, **given
        )
    finally:
        progress.close()
    with corpus:
        yield corpus


@contextmanager
def blended(given, choices, model, name, out, quiet):
    """A Blend of prepared corpora, ``folder:weight`` each, while a with-block lasts.

    Its temporary copy lies beside ``out``, where there is room for large files.
    """
    with ExitStack() as stack:
        parts = []
        for folder, weight in parse_blend(given):
            if not os.path.exists(folder):
                raise TextError(f"{folder}: no such corpus")
            if not is_prepared([folder]):
                raise SettingsError(
                    f"{folder}: a blend is made of prepared corpora; fastnplm prepare {folder}"
                    f" -o {folder}.corpus, the later ones with --vocabulary and the first corpus"
                )
            corpus = stack.enter_context(opened([folder], choices, model, name, quiet))
            parts.append((corpus, weight))
        beside = os.path.dirname(os.path.abspath(out))
        blend = stack.enter_context(Blend(parts, beside))
        for (corpus, _), share in zip(parts, blend.shares.tolist(), strict=True):
            remark(
                f"{corpus.folder}: {describe(corpus)}; {share:,} examples an epoch"
                f" ({share / len(blend):.1%})",
                quiet,
            )
        yield blend


def describe(corpus):
    """A corpus in one line, with all that reading it met."""
    report = corpus.report
    text = (
        f"{report.words:,} words and {report.sentences:,} sentence ends, vocabulary"
        f" {len(corpus.vocabulary):,}, {report.oov:,} unknown"
        f" ({report.oov / max(report.words, 1):.2%})"
    )
    for count, what in (
        (report.blank_lines, "blank lines skipped"),
        (report.skipped_lines, "damaged lines skipped"),
        (report.replaced_bytes, "damaged bytes replaced"),
        (report.reserved_words, "reserved words met"),
        (report.spills, "tables of counts put on disk (all counts are exact)"),
    ):
        if count:
            text += f", {count:,} {what}"
    return text
