"""Options that several words of the command share, each with one name and one meaning."""

import os
import re

import click


class Words(click.ParamType):
    """Text on the command line: UTF-8 whatever the locale."""

    name = "text"

    def convert(self, value, param, ctx):
        try:
            return os.fsencode(value).decode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return value


_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}


class Size(click.ParamType):
    """Bytes, as a number or with a unit: 1073741824, 512MiB, 1GiB, 800MB, 2g."""

    name = "size"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        match = re.fullmatch(
            r"(\d+(?:\.\d+)?) *(?:([kmgt])(i?b)?|b)?", value.strip(), re.IGNORECASE
        )
        if match is None:
            self.fail(f"{value!r} is no size such as 1GiB, 512MiB or 2000000000", param, ctx)
        number, unit, ending = match.groups()
        if unit is None:
            return int(float(number))
        power = _POWERS[unit.lower()]
        decimal = (ending or "").lower() == "b"
        return int(float(number) * (10 ** (power // 10 * 3) if decimal else 1 << power))


WORDS = Words()
SIZE = Size()
FOLDER = click.Path(path_type=str)
COUNT = click.IntRange(min=1)
SHARE = click.FloatRange(0, 1, max_open=True)


def options(*decorators):
    """Several option decorators as one, shown by ``--help`` in this order."""

    def add(function):
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


quiet = click.option("--quiet", "-q", is_flag=True, help="Say nothing but results and errors.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for a program to read.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
threads = click.option("--threads", type=COUNT, help="Default: the processors it may use.")
kernels = click.option(
    "--kernels",
    type=click.Choice(["auto", "native", "numba", "reference"]),
    default="auto",
    show_default=True,
    help="What computes: compiled, jitted or NumPy.",
)
computing = options(threads, kernels)

_encoding = click.option("--encoding", help="Of the text: any codec of Python.  [default: utf-8]")
reading = options(
    _encoding,
    click.option(
        "--errors",
        type=click.Choice(["strict", "replace", "skip-line"]),
        help="For bytes that are not of the encoding.  [default: strict]",
    ),
    click.option(
        "--reserved",
        type=click.Choice(["reject", "whitespace", "map"]),
        help="For a literal <s> or </s> in the text.  [default: reject]",
    ),
)

_words = options(
    click.option(
        "--segment",
        type=click.Choice(["space", "char", "jieba"]),
        help="How text becomes words.  [default: space]",
    ),
    click.option("--lowercase", is_flag=True, default=None, help="Lower-case the words."),
    click.option("--normalize", type=click.Choice(["NFC", "NFKC"]), help="Unicode normal form."),
)
splitting = options(_words, _encoding)
building = options(
    click.option(
        "--min-count", type=COUNT, help="Words seen less often become <unk>.  [default: 3]"
    ),
    click.option(
        "--max-vocab", type=COUNT, help="Words at most, the three reserved ones included."
    ),
    _words,
    reading,
    click.option(
        "--memory",
        type=SIZE,
        help="For counting words; beyond it counting goes on on disk, as exactly.  [default: 1GiB]",
    ),
)
BUILDING = ("min_count", "max_vocab", "segment", "lowercase", "normalize", "memory")
READING = ("encoding", "errors", "reserved")
