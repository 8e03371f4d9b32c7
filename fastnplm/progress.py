"""What training shows while it runs: a bar on a terminal, plain lines elsewhere, or nothing."""

import math
import sys
import time

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Shows tokens done, loss, perplexity, words a second and the time left, on standard error.

    label : what the loss is called; exact : whether exp(loss) is a perplexity; total : tokens of
    the whole run; done : tokens already trained on before a resumed run.
    """

    def __init__(self, label, exact, total, done=0, quiet=False, stream=None):
        self._label, self._exact, self._total = label, exact, total
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._done = self._first = done
        self._seconds = 0.0  # of training alone: validation and saving are reported apart
        self._shown = time.monotonic()
        self._bar = None
        if not quiet and self._stream.isatty():
            self._bar = bar(total, done, self._stream)

    @property
    def fraction(self):
        """Share of the run that is done, in [0, 1]; 1 exactly at its end."""
        return self._done / self._total if self._total else 1.0

    @property
    def seconds_left(self):
        """Estimated seconds of training left, or None before there is anything to go by."""
        trained = self._done - self._first
        if not trained or not self._seconds:
            return None
        return max(0.0, self._seconds * (self._total - self._done) / trained)

    def advance(self, tokens, seconds, loss):
        """Count ``tokens`` trained in ``seconds``; ``loss`` is the running mean of the epoch."""
        self._done += tokens
        self._seconds += seconds
        if self._bar is not None:
            self._bar.set_postfix_str(self._loss(loss), refresh=False)
            self._bar.update(tokens)
        elif not self._quiet and time.monotonic() - self._shown > SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            rate = (self._done - self._first) / self._seconds if self._seconds else 0.0
            left = self.seconds_left
            ending = "" if left is None else f", {duration(left)} left"
            self.line(f"{self.fraction:6.1%}  {self._loss(loss)}  {rate:,.0f} words/s{ending}")

    def line(self, text):
        """Print one line above the bar, or plainly."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            safe = text.encode(encoding, errors="backslashreplace").decode(encoding)
            print(safe, file=self._stream, flush=True)

    def close(self):
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _loss(self, loss):
        text = f"{self._label} {loss:.4f}"
        if self._exact and loss < 700:
            text += f"  perplexity {math.exp(loss):.1f}"
        return text


def bar(total, done, stream, unit="word"):
    """A bar on a terminal that shows share, speed and time left."""
    from tqdm import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # no thread of its own

    return Bar(
        total=total, initial=done, unit=unit, unit_scale=True, file=stream, leave=False,
        dynamic_ncols=True, mininterval=0.2, smoothing=0.05,
    )  # fmt: skip


def duration(seconds):
    """Seconds as m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
