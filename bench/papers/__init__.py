"""The perplexities of the papers, and ours, row by row: ``python -m bench.papers --help``."""
