"""Words of the command that show what this installation is and does: demo, info, bench."""

import click

from .options import FOLDER, as_json, computing, quiet
from .output import show_json


@click.command(short_help="Train on text every Python ships, in a minute.")
@computing
@click.option("-o", "--out", type=FOLDER, help="Keep the model in this folder.")
@click.option("--overwrite", is_flag=True, help="Replace the folder if it exists.")
@click.option("--text", type=FOLDER, help="Only write its texts to this folder: try train on them.")
@as_json
@quiet
def demo(threads, kernels, out, overwrite, text, as_json, quiet):
    """Train on Python's own documentation topics and show what comes of it.

    \b
    fastnplm demo
    fastnplm demo -o topics && fastnplm neighbors topics list
    fastnplm demo --text texts && fastnplm train texts/train.txt -o model
    """
    from ..demo import run, write_texts

    if text is not None:
        write_texts(text)
        return
    found = run(threads, kernels, out, overwrite, quiet=quiet or as_json)
    if as_json:
        show_json(found)


@click.command(short_help="What this installation runs on.")
@as_json
@quiet
def info(as_json, quiet):
    """Print the version, kernels, instruction set, BLAS and threads that this machine gives.

    \b
    fastnplm info
    """
    from ..installation import describe

    found = describe()
    if as_json:
        show_json(found)
        return
    width = max(map(len, found)) + 2
    for name, value in found.items():
        click.echo(f"{name.replace('_', ' '):{width}}{value}")


@click.command(
    short_help="Measure the kernels, from a checkout.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--quick", is_flag=True, help="The essentials: fewer sizes, fewer rounds.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(quick, arguments):
    """Run the benchmark suite with pytest; ARGUMENTS are pytest's.

    \b
    fastnplm bench --quick
    fastnplm bench -k softmax
    """
    import subprocess
    import sys
    from pathlib import Path

    from ..errors import SettingsError

    for checkout in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (checkout / "bench").is_dir() and (checkout / "csrc").is_dir():
            break
    else:
        raise SettingsError(
            "bench needs a checkout of fastnplm with its bench folder; go there and try again"
        )
    given = ["--quick", *arguments] if quick else list(arguments)
    command = [sys.executable, "-m", "pytest", "bench", *given]
    click.get_current_context().exit(subprocess.run(command, cwd=checkout).returncode)
