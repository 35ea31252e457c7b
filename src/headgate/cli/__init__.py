"""The command line: one thin module per command."""

from headgate.cli.main import app

__all__ = ["app"]
