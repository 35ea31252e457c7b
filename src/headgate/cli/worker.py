"""``headgate worker``: serve regions that run elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.options import within
from headgate.errors import InputError
from headgate.regions.greeting import SHORTEST_SECRET
from headgate.regions.listener import SECRET_VARIABLE
from headgate.regions.region import address_of

PER_CORE = 4
"""Connections a worker serves for each core, where the limit is not set: several regions may share it."""

MOST_CONNECTIONS = 10_000

LOOPBACK = ("127.0.0.1", "::1", "localhost")

_PROGRAM = "import sys; from headgate.regions import listener; sys.exit(listener.main(sys.argv[1:]))"
"""The listener forks, so it runs in a Python that has loaded none of what the command line needs."""


def worker(
    listen: Annotated[str, typer.Option(help="Where to listen, host:port; port 0 takes a free one.")] = "127.0.0.1:0",
    secret_file: Annotated[str | None, typer.Option(help="A file with the secret that regions must know.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Encrypt: the file of this worker's certificate chain.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="The file of the certificate's private key.")] = None,
    limit: Annotated[int | None, typer.Option(help="Connections served at once; otherwise 4 for each core.")] = None,
) -> None:
    """Run functions for ordered regions elsewhere: every connection gets a process of its own, several at once.

    Whoever knows the secret can run code here, and nobody else. It comes from --secret-file or from the environment
    variable HEADGATE_SECRET. Prints where it listens. Ends with Ctrl-C or SIGTERM.

    \b
    Examples:
      headgate worker --listen 127.0.0.1:7070 --secret-file secret
      headgate worker --listen 10.0.0.7:7070 --secret-file secret --tls-cert worker.pem --tls-key worker.key
    """
    os.execv(sys.executable, command(listen, secret_file, tls_cert, tls_key, limit))


def command(
    listen: str, secret_file: str | None, tls_cert: str | None, tls_key: str | None, limit: int | None
) -> list[str]:
    """The program that listens, with its options. Raises ``InputError`` for options that cannot work."""
    host, port = address_of(listen)
    most = limit if limit is not None else PER_CORE * (os.cpu_count() or 1)
    within("--limit", most, 1, MOST_CONNECTIONS)
    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key belong together: give both or neither")
    if secret_file is None and SECRET_VARIABLE not in os.environ:
        raise InputError(
            f"a worker runs code for whoever knows its secret, and there is none: give --secret-file, or set "
            f"{SECRET_VARIABLE} to at least {SHORTEST_SECRET} random bytes"
        )
    for file in (secret_file, tls_cert, tls_key):
        if file is not None and not Path(file).is_file():
            raise InputError(f"{file} must be a file, and is not there")
    words = [sys.executable, "-c", _PROGRAM, host, str(port), str(most)]
    for name, value in (("--secret-file", secret_file), ("--tls-cert", tls_cert), ("--tls-key", tls_key)):
        if value is not None:
            words += [name, value]
    return words
