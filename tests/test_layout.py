"""The house: data flows one way, and a module imports only what stands before it."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fastnplm"
# The way of the data, as DESIGN gives it; modules between two of these belong where they import.
WAY = [
    "errors", "vocabulary", "corpus", "kernels", "noise", "loss", "optimizer", "model", "step",
    "storage", "evaluation", "query", "training", "command",
]  # fmt: skip
DATA = ["text", "source", "encoding", "vocabulary", "lexicon", "census", "draft",
        "preparation", "header", "corpus", "batches", "blend"]  # fmt: skip


def imports_of(code, package=("fastnplm",)):
    """The parts of fastnplm that code imports when it is loaded (not inside functions)."""
    found = set()

    def visit(statements):
        for node in statements:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.ImportFrom):
                parts = list(package[: len(package) - node.level + 1]) if node.level else []
                parts += (node.module or "").split(".") if node.module else []
                if parts[:1] == ["fastnplm"]:
                    inside = parts[1:2]
                    found.update(inside or [alias.name for alias in node.names])
            elif isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
                found.update(n[1] for n in names if n[0] == "fastnplm" and len(n) > 1)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for part in ("body", "orelse", "finalbody"):
                    visit(getattr(node, part, []))
                for handler in getattr(node, "handlers", []):
                    visit(handler.body)

    visit(ast.parse(code).body)
    return found


def graph():
    """Module -> the modules it imports; kernels and command count as one each."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        package = ("fastnplm", *parts[:-1])
        found.setdefault(parts[0], set()).update(imports_of(path.read_text("utf-8"), package))
    modules = set(found)
    return {name: (to & modules) - {name} for name, to in found.items()}


def test_no_module_needs_itself():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"modules import one another: {' -> '.join(error.args[1])}")


def reached(start, edges):
    """All that a module imports, directly or not."""
    found, waiting = set(), [start]
    while waiting:
        for name in edges[waiting.pop()]:
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


@pytest.mark.parametrize("place", range(len(WAY)), ids=WAY)
def test_imports_go_against_the_way_of_the_data(place):
    later = set(WAY[place + 1 :]) & reached(WAY[place], graph())
    assert not later, f"{WAY[place]} imports what stands after it: {sorted(later)}"


@pytest.mark.parametrize("name", [n for n in DATA if (PACKAGE / f"{n}.py").exists()])
def test_data_modules_know_neither_kernels_nor_model(name):
    known = reached(name, graph())
    assert not known & {"kernels", "loss", "model", "step", "training", "command"}


def test_kernels_know_arrays_alone():
    assert graph()["kernels"] == {"errors"}


def test_compiled_kernels_have_never_heard_of_vocabularies():
    for path in (ROOT / "csrc").glob("*.p[yx][xi]"):
        known = re.findall(r"from \.+(\w+)|import fastnplm\.(\w+)", path.read_text("utf-8"))
        assert not {a or b for a, b in known} & {"vocabulary", "corpus", "model", "training"}


def test_the_checks_see_what_they_should():
    edges = {"a": {"b"}, "b": {"a"}}
    with pytest.raises(CycleError):
        TopologicalSorter(edges).prepare()
    assert reached("a", edges) == {"a", "b"}
    code = "from .corpus import Corpus\nfrom . import loss\ndef f():\n    from .model import M\n"
    assert imports_of(code) == {"corpus", "loss"}
    assert imports_of("from ..errors import E", ("fastnplm", "kernels")) == {"errors"}
