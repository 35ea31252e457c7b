"""Ordered parallel regions: a function on many workers, results in order, load by blocking rate.

    pure    balance, turns, functions, allocation, clusters, blocking    who gets how much
            frames, cargo, greeting, ledger, sizing, service             what travels, what is where, how long it took
    shell   tcp, worker, listener, processes, roster, ends, pump         sockets, processes, threads
            region, ordered, options                                     what one uses

Names are looked up when first used: a worker loads this package and needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.regions.balance import Balancer, Fixed, RoundRobin, Sample, View
    from headgate.regions.blocking import BlockingRate
    from headgate.regions.options import Counters, Options, Progress, Skipped
    from headgate.regions.ordered import ordered_map
    from headgate.regions.region import Region

_HOMES = {
    "Balancer": "balance",
    "BlockingRate": "blocking",
    "Counters": "options",
    "Fixed": "balance",
    "Options": "options",
    "Progress": "options",
    "Region": "region",
    "RoundRobin": "balance",
    "Sample": "balance",
    "Skipped": "options",
    "View": "balance",
    "ordered_map": "ordered",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headgate.regions' has no attribute {name!r}")
    return getattr(import_module(f"headgate.regions.{home}"), name)


__all__ = [
    "Balancer",
    "BlockingRate",
    "Counters",
    "Fixed",
    "Options",
    "Progress",
    "Region",
    "RoundRobin",
    "Sample",
    "Skipped",
    "View",
    "ordered_map",
]
