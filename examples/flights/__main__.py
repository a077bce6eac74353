"""`python -m examples.flights`: see `examples.flights.cli`.

The application's classes live in `examples.flights.aircraft`, not here: a worker process cannot import
the `__main__` of a package.
"""

from __future__ import annotations

import sys

from examples.flights.cli import main

if __name__ == "__main__":
    sys.exit(main())
