"""The command line: parses, prints, sets the exit code, decides nothing.

Results go to stdout, progress and errors to stderr. Exit code 0: done; 1: a comparison found a difference;
2: the user can mend it; 130: stopped by Ctrl-C, with a partial result. One module a command; each imports
what it needs when it runs, so that ``simkv --help`` starts at once.
"""

from __future__ import annotations

import sys

import typer

from simkv.cli.calibrate import calibrate
from simkv.cli.catalog import list_shipped
from simkv.cli.collect import collect
from simkv.cli.compare import compare
from simkv.cli.plan import plan
from simkv.cli.plot import plot
from simkv.cli.run import run
from simkv.cli.sweep import sweep
from simkv.cli.validate import validate_app
from simkv.cli.validate_kernels import validate_kernels
from simkv.errors import InputError, SimkvError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Simulate multi-GPU long-context LLM serving with vLLM's semantics.",
)
app.command()(run)
app.command()(plan)
app.command()(sweep)
app.command()(plot)
app.command()(compare)
app.command("list")(list_shipped)
app.command()(collect)
app.command()(calibrate)
validate_app.command("kernels")(validate_kernels)
app.add_typer(validate_app, name="validate")


def main() -> None:
    """Run the command line; errors that the user can mend become one line each and exit code 2."""
    faults: tuple[str, ...] = ()
    try:
        app()  # ends the process unless it raises
    except InputError as error:
        faults = error.faults
    except SimkvError as error:
        faults = (str(error),)
    except OSError as error:  # a full disk, a name that is too long
        faults = (f"{error.filename or 'simkv'}: {error.strerror or error}",)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(2)
