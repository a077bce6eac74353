"""Sojourn: Actors and Spots that keep their address, queue, timers and state while they move between nodes.

The public face. Names are loaded on first use, so that a supervisor that never runs user code does not
pay for what only workers need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.errors import AlreadyExists as AlreadyExists
    from sojourn.errors import DataLost as DataLost
    from sojourn.errors import DeadlineExceeded as DeadlineExceeded
    from sojourn.errors import InternalFailure as InternalFailure
    from sojourn.errors import InvalidOperation as InvalidOperation
    from sojourn.errors import NotConfigured as NotConfigured
    from sojourn.errors import NotFound as NotFound
    from sojourn.errors import ProtocolError as ProtocolError
    from sojourn.errors import Rejected as Rejected
    from sojourn.errors import ShuttingDown as ShuttingDown
    from sojourn.errors import SojournError as SojournError
    from sojourn.errors import TypeMismatch as TypeMismatch
    from sojourn.errors import Unavailable as Unavailable
    from sojourn.options import Options as Options
    from sojourn.spots.app import App as App
    from sojourn.spots.declarations import request as request
    from sojourn.spots.declarations import send as send
    from sojourn.spots.declarations import timer as timer
    from sojourn.spots.objects import Actor as Actor
    from sojourn.spots.objects import EntrySpot as EntrySpot
    from sojourn.spots.objects import InstanceSpot as InstanceSpot
    from sojourn.spots.objects import UserSpot as UserSpot
    from sojourn.spots.references import ActorRef as ActorRef
    from sojourn.spots.references import Relocation as Relocation
    from sojourn.spots.references import SpotRef as SpotRef
    from sojourn.spots.ticks import Tick as Tick
    from sojourn.workers.client import Client as Client
    from sojourn.workers.host_result import HostRelocation as HostRelocation
    from sojourn.workers.host_result import StayedUnit as StayedUnit
    from sojourn.workers.local_cluster import LocalCluster as LocalCluster
    from sojourn.workers.local_node import LocalNode as LocalNode

__all__ = [
    "Actor",
    "ActorRef",
    "AlreadyExists",
    "App",
    "Client",
    "DataLost",
    "DeadlineExceeded",
    "EntrySpot",
    "HostRelocation",
    "InstanceSpot",
    "InternalFailure",
    "InvalidOperation",
    "LocalCluster",
    "LocalNode",
    "NotConfigured",
    "NotFound",
    "Options",
    "ProtocolError",
    "Rejected",
    "Relocation",
    "ShuttingDown",
    "SojournError",
    "SpotRef",
    "StayedUnit",
    "Tick",
    "TypeMismatch",
    "Unavailable",
    "UserSpot",
    "__version__",
    "request",
    "send",
    "timer",
]

__version__ = "0.1.0"

_HOMES = {
    "sojourn.errors": (
        "AlreadyExists",
        "DataLost",
        "DeadlineExceeded",
        "InternalFailure",
        "InvalidOperation",
        "NotConfigured",
        "NotFound",
        "ProtocolError",
        "Rejected",
        "ShuttingDown",
        "SojournError",
        "TypeMismatch",
        "Unavailable",
    ),
    "sojourn.options": ("Options",),
    "sojourn.spots.app": ("App",),
    "sojourn.spots.declarations": ("request", "send", "timer"),
    "sojourn.spots.objects": ("Actor", "EntrySpot", "InstanceSpot", "UserSpot"),
    "sojourn.spots.references": ("ActorRef", "Relocation", "SpotRef"),
    "sojourn.spots.ticks": ("Tick",),
    "sojourn.workers.client": ("Client",),
    "sojourn.workers.host_result": ("HostRelocation", "StayedUnit"),
    "sojourn.workers.local_cluster": ("LocalCluster",),
    "sojourn.workers.local_node": ("LocalNode",),
}
"""Where each public name lives."""


if not TYPE_CHECKING:  # a checker that saw it would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(importlib.import_module(home), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'sojourn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
