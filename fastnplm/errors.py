"""The errors a user can meet: each is one clear line, and each is also a built-in kind of error."""

__all__ = [
    "ArrayError",
    "CheckpointError",
    "CorpusError",
    "DivergenceError",
    "Error",
    "IdError",
    "ModelError",
    "ResourceError",
    "SettingsError",
    "TextError",
    "VectorsError",
    "VocabularyError",
]


class Error(Exception):
    """Base of all errors of fastnplm; its text says what, where and what to do."""


class TextError(Error, ValueError):
    """Text that cannot be read as asked: where (file, line, byte offset) and what to do."""


class VocabularyError(Error, ValueError):
    """A vocabulary that cannot be built, read or used with what it was given."""


class CorpusError(Error, ValueError):
    """An encoded corpus that is damaged, incomplete or belongs to another vocabulary."""


class ArrayError(Error, ValueError):
    """An array of another shape, dtype or layout than a kernel takes; nothing was written."""


class IdError(Error, IndexError):
    """An id outside its range: names the value, its position and the limit."""


class ModelError(Error, ValueError):
    """A model folder that is damaged, incomplete or of another version, or a wrong shape."""


class CheckpointError(Error, ValueError):
    """A checkpoint that is damaged or belongs to another run."""


class SettingsError(Error, ValueError):
    """An option or argument outside what it may be, or options that contradict each other."""


class VectorsError(Error, ValueError):
    """A word-vector file that cannot be read or written as asked."""


class DivergenceError(Error, ArithmeticError):
    """Training met a loss or parameter that is not finite."""


class ResourceError(Error, OSError):
    """Memory or disk is not enough for what was asked; nothing was begun."""
