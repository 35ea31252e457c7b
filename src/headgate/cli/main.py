"""The program ``headgate``: its commands, its version, and how it fails.

Whatever was handed in wrongly ends in one line on stderr, ``headgate: ...``, and exit code 2. A fault of headgate's own
that has a name (``SolverError``) ends in one line and exit code 1.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headgate.cli.demo import demo
from headgate.cli.plan import plan
from headgate.cli.racing import race
from headgate.cli.region_demo import region_demo
from headgate.cli.show import plain
from headgate.cli.state import state
from headgate.cli.top import top
from headgate.cli.worker import worker
from headgate.errors import HeadgateError, InputError

BAD_INPUT = 2
OWN_FAULT = 1

LONGEST_COMPLAINT = 1_000
"""A message may quote what it found in a file; a file that is no text at all would quote itself forever."""

COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""What Typer raises for options it cannot read; some versions carry their own Click, so it is found by its heir."""


class Commands(TyperGroup):
    """Commands that report every error as one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a key that the terminal cannot show is no reason to fail
        sys.exit(self._guarded(lambda: super(Commands, self).main(args, prog_name, complete_var, False, **extra)))

    @staticmethod
    def _guarded(run: Any) -> int:
        """Run, and turn every expected error into a line and an exit code."""
        try:
            code = run()
            sys.stdout.flush()
        except COMMAND_LINE_ERROR as error:
            return complain(_with_hint(error), BAD_INPUT)
        except InputError as error:
            return complain(str(error), BAD_INPUT)
        except HeadgateError as error:
            return complain(str(error), OWN_FAULT)
        except typer.Abort:
            return 130
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has seen enough (head, less): nothing to report
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                return 0
            return complain(f"{error.filename or 'a file'}: {error.strerror or error}", BAD_INPUT)
        return code if isinstance(code, int) else 0


def _with_hint(error: Exception) -> str:
    text = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{text}: see {context.command_path if context else 'headgate'} --help"


def complain(text: str, code: int) -> int:
    """Say what is wrong in one line, and give the exit code back."""
    line = plain(" ".join(text.split()).rstrip("."), LONGEST_COMPLAINT)
    print(f"headgate: {line}", file=sys.stderr)
    return code


app = typer.Typer(
    name="headgate",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headgate {version('headgate')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def headgate(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Level the load of stateful stream processing: watch it, look into its state, plan which slot has which key.

    \b
    Start here:
      headgate demo
      headgate region-demo
      headgate top ckpt
      headgate state ckpt --key the
      headgate plan stats.csv --planner mixed --slots 8
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("plan")(plan)
app.command("demo")(demo)
app.command("region-demo")(region_demo)
app.command("race")(race)
app.command("state")(state)
app.command("top")(top)
app.command("worker")(worker)
