"""What the command prints: results on standard output, remarks on standard error."""

import json
import math
import sys
import time

import click

SECONDS_BETWEEN = 0.2


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
    """Shows how far reading text has come, on a terminal: share, words a second, time left."""

    def __init__(self, quiet=False):
        self._shown = self._began = time.monotonic()
        self._on = not quiet and sys.stderr.isatty()
        self._width = 0

    def __call__(self, done, size, words):
        """``done`` bytes and ``words`` read so far; ``size`` bytes on disk (maybe compressed)."""
        now = time.monotonic()
        if not self._on or now - self._shown < SECONDS_BETWEEN:
            return
        self._shown = now
        text = f"reading: {words:,} words, {words / (now - self._began):,.0f} words/s"
        if done <= size:
            text += f", {done / size:.0%}"
        self._show(text)

    def _show(self, text):
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self):
        """Take the line away."""
        if self._width:
            self._show("")
            sys.stderr.write("\r")
            sys.stderr.flush()
