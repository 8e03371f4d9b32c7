"""``python -m fastnplm``: the command."""

from .command import main

main()
