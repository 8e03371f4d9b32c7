"""Saved models of any kind: a network, a count model, a mixture."""

from __future__ import annotations

import os

from fastnplm.errors import ModelError
from fastnplm.folder import find_folder, read_json
from fastnplm.mixture import Mixture
from fastnplm.ngram import NGram
from fastnplm.nplm import NPLM

__all__ = ["load"]


def load(folder: str | os.PathLike[str]) -> NPLM | NGram | Mixture:
    """Read a model folder, whatever model it holds; its files are checked first.

    Raises ModelError naming the file and what is wrong with it.
    """
    place = find_folder(folder) / "config.json"
    if not place.is_file():
        raise ModelError(f"{folder} is not a model folder: there is no config.json in it")
    kind = read_json(place).get("kind")
    if kind == "nplm":
        return NPLM.load(folder)
    if kind == "ngram":
        return NGram.load(folder)
    if kind == "mixture":
        return Mixture.load(folder, load)
    raise ModelError(f"{place}: kind is {kind!r}; this version reads nplm, ngram and mixture")
