"""Sojourn: Actors and Spots that keep their address, queue, timers and state while they move between nodes.

The public face. Names are loaded on first use, so that a supervisor that never runs user code does not
pay for what only workers need.
"""

from __future__ import annotations

__version__ = "0.1.0"
