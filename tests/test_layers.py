"""Who may import whom: the table of CONTRIBUTING.md, read out of the imports themselves."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "simkv"

BASE = {"units", "errors"}
DATA = {"step", "spec"}
PURE = {"scheduler", "cost", "kv", "workload", "results"}
ALLOWED = {
    "units": set(),
    "errors": set(),
    "step": BASE,
    "spec": BASE,
    "workload": BASE | DATA,
    "kv": BASE | DATA,
    "cost": BASE | DATA,
    "results": BASE | DATA,
    "scheduler": BASE | DATA | {"kv"},
    "load": BASE | DATA,
    "engine": BASE | DATA | {"scheduler", "cost", "kv", "workload", "results"},
    "calibrate": BASE | DATA | {"cost", "load"},
    "planning": BASE | DATA | {"cost", "kv", "workload", "load"},
    "plots": BASE | {"results"},
    "run": BASE | DATA | PURE | {"load", "engine", "planning"},
    "validate": BASE | DATA | PURE | {"run", "planning", "load", "calibrate"},
    "sweeping": BASE | DATA | {"run", "planning", "load", "results"},
    "cli": None,  # everything below
    "__main__": {"cli"},
    "__init__": None,  # the lazy public namespace
}
# Third-party packages that mark a layer: where time passes, where text becomes specs, where things are drawn.
OUTSIDE = {
    "simpy": {"engine"},
    "yaml": {"load", "results"},  # results writes the resolved scenario
    "matplotlib": {"plots"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pyarrow": {"results", "load"},  # load reads the measured points of a calibration, for runs only
    "joblib": {"sweeping"},
}


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    """Yield the modules a file imports, those only for type checkers left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "simkv":
                yield from (f"simkv.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path):
    layer = layer_of(path)
    allowed = ALLOWED[layer]
    for module in imports_of(path):
        top, _, rest = module.partition(".")
        if top != "simkv":
            assert layer in OUTSIDE.get(top, {layer}), f"{layer} imports {top}"
        elif allowed is not None and rest:
            target = rest.partition(".")[0]
            assert target in allowed | {layer, "__version__"}, f"{layer} imports simkv.{rest}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small(path):
    """No file over 300 lines without a reason in its docstring."""
    text = path.read_text(encoding="utf-8")
    if len(text.splitlines()) > 300:
        assert "one noun" in (ast.get_docstring(ast.parse(text)) or ""), f"{path.name} is long"


def test_starting_the_command_line_imports_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, simkv, simkv.cli, simkv.load.scenario, simkv.planning;"
        "print([m for m in ('matplotlib', 'pandas', 'scipy', 'pyarrow', 'numpy', 'simpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
