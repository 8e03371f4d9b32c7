"""What the command prints: results on standard output, remarks on standard error."""

import json
import math
import sys
import time

import click

from ..progress import SECONDS_BETWEEN_LINES, bar, duration


def remark(text, quiet=False):
    """One line on standard error, unless ``quiet``."""
    if not quiet:
        click.echo(text, err=True)


def show_json(value):
    """A value as JSON in one line; numbers that are not finite become null."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    click.echo(json.dumps(_finite(value), ensure_ascii=not encoding.startswith("utf")))


def _finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class Reading:
    """Shows how far reading text has come: a bar on a terminal, elsewhere a line now and then.

    In bytes of the files, with words a second and the time left; on standard error.
    """

    def __init__(self, quiet=False, stream=None):
        self._stream = stream if stream is not None else sys.stderr
        self._quiet, self._bar = quiet, None
        self._shown = self._began = time.monotonic()

    def __call__(self, done, size, words):
        """``done`` of ``size`` bytes on disk and ``words`` were read so far."""
        if self._quiet:
            return
        now = time.monotonic()
        spent = max(now - self._began, 1e-9)
        text = f"{words:,} words, {words / spent:,.0f} words/s"
        if self._stream.isatty():
            if self._bar is None:
                self._bar = bar(size, 0, self._stream, unit="B")
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif now - self._shown > SECONDS_BETWEEN_LINES and done:
            self._shown = now
            left = duration(max(0, size - done) / done * spent)
            remark(f"reading: {done / size:.0%} of {size:,} bytes, {text}, {left} left")

    def close(self):
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
