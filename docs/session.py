"""Runs the sessions that README.md shows, and writes what they really print into it.

    python docs/session.py            # run (needs the extra plot); put the output into README.md
    python docs/session.py large      # only the block of this name
    python docs/session.py --check    # only compare the commands; run nothing

A block between ``<!-- session NAME -->`` and ``<!-- end -->`` is a list of commands, each after
``$ ``; all run in one temporary folder, in order. What a command printed follows it.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- session (\w+) -->\n```\w*\n)(.*?)(```\n<!-- end -->)", re.DOTALL)


def commands(body):
    """The commands of a block: lines after ``$ `` and those they continue on."""
    found = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif found and found[-1].endswith("\\"):
            found[-1] += "\n" + line
    return found


def transcript(body, folder):
    """The block again, with what each command prints now."""
    text = ""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands(body):
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        text += f"$ {command}\n{done.stdout}"
    return text


def main():
    text = README.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    if not blocks:
        raise SystemExit("README.md has no session")
    if "--check" in sys.argv[1:]:
        print("\n".join(command for block in blocks for command in commands(block[2])))
        return
    chosen = sys.argv[1:] or [block[1] for block in blocks]
    with tempfile.TemporaryDirectory() as folder:
        text = BLOCK.sub(
            lambda m: m[1] + (transcript(m[3], folder) if m[2] in chosen else m[3]) + m[4], text
        )
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
