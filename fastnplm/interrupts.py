"""Ctrl-C and SIGTERM between two batches: the model is left whole, a second one stops at once."""

import signal
import threading
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; the command exits with 143."""


def terminate(number, frame):
    """A handler for SIGTERM that raises Terminated, so that temporary files are cleared away."""
    raise Terminated()


class Interrupts:
    """While entered, the first signal is only noted; ``check`` raises it at a safe moment.

    Only the main thread can take signals, and only handlers that nobody has replaced are taken
    over: Python's own for Ctrl-C, the system's or ``terminate`` for SIGTERM. They are put back on
    leaving.
    """

    def __enter__(self):
        self._caught = None
        self._at_once = False
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._note)
            if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, terminate):
                self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self._caught is not None or self._at_once:
            raise self._error(number)
        self._caught = number

    @contextmanager
    def at_once(self):
        """While entered, a signal raises where it arrives: for long work that changes nothing."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def check(self):
        """Raise KeyboardInterrupt (or Terminated) if a signal came since the last check."""
        if self._caught is not None:
            raise self._error(self._caught)

    @staticmethod
    def _error(number):
        return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
