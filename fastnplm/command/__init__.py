"""The command ``fastnplm``: its words, and what they share: errors as one line, exit codes.

Exit codes: 0; 1 after an error (one line on standard error); 2 for wrong usage; 130 after Ctrl-C;
143 after SIGTERM.
"""

import signal
import sys
import threading
import warnings

import click

from ..errors import Error
from ..interrupts import Terminated, terminate
from ..version import __version__
from .corpus import inspect, prepare, verify
from .counts import mix, ngram
from .evaluate import evaluate, score
from .export import export, plot
from .query import analogy, generate, neighbors, predict
from .show import bench, demo, info
from .train import train

_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    # Options have the names of the Python arguments; both --min-count and --min_count are read.
    "token_normalize_func": lambda name: name.replace("_", "-"),
}


class Commands(click.Group):
    """A group whose words turn errors into one line and an exit code."""

    def list_commands(self, ctx):
        return list(self.commands)  # in the order of the work, not of the alphabet

    def invoke(self, ctx):
        try:
            with _warnings_as_lines():
                result = super().invoke(ctx)
                sys.stdout.flush()
            return result
        except Terminated:
            status = 143
        except KeyboardInterrupt:
            status = 130
        except BrokenPipeError:
            raise  # whoever read the output has enough: click leaves quietly
        except (Error, OSError, MemoryError) as error:
            status = 1
            click.echo(f"fastnplm: {one_line(error)}", err=True)
        ctx.exit(status)


def one_line(error):
    """What to tell about an error, without line ends."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, Error) and error.strerror:
        named = [str(name) for name in (error.filename, error.filename2) if name is not None]
        text = ": ".join([*named, error.strerror])
    if isinstance(error, MemoryError):
        text = f"out of memory ({text}); take a smaller model, batch or vocabulary"
    return " ".join((text or type(error).__name__).split("\n"))


class _warnings_as_lines(warnings.catch_warnings):  # noqa: N801 - used as a with-block
    def __enter__(self):
        super().__enter__()
        warnings.showwarning = lambda message, *_, **__: click.echo(
            f"fastnplm: {message}", err=True
        )


@click.group(cls=Commands, context_settings=_SETTINGS, epilog="fastnplm COMMAND --help tells more.")
@click.version_option(__version__, message="fastnplm %(version)s")
def commands():
    """Neural probabilistic language models (Bengio et al. 2003), trained on a CPU.

    \b
    fastnplm train corpus.txt -o model --valid valid.txt
    fastnplm evaluate model test.txt
    fastnplm predict model "the cat sat on the" -k 5
    """


for _command in (
    demo, inspect, prepare, verify, train, evaluate, score, predict, generate, neighbors, analogy,
    export, plot, ngram, mix, bench, info,
):  # fmt: skip
    commands.add_command(_command)


def main(arguments=None):
    """Run the command and leave the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A word that the terminal's encoding does not have is shown escaped, not refused.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
    commands.main(arguments, prog_name="fastnplm")
