"""What a pool says about the programs its workers imported."""

from __future__ import annotations

import pytest
from sojourn.control import RegistryEntry, WorkerReady
from sojourn.workers.pool import Application
from sojourn.workers.worker_run import describe_exit


def ready(*types: str, version: int = 1, policy: str = "preserve") -> Application:
    registry = [RegistryEntry(name, 1, policy, version) for name in types]
    return Application.of(WorkerReady(0, 1, "arena", version, registry))


def test_the_order_of_registration_does_not_matter() -> None:
    assert ready("A", "B") == ready("B", "A")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (ready("A", "B"), "its registered types changed: B"),
        (ready("B"), "its registered types changed: A, B"),
        (ready("A", policy="disabled"), "its registered types changed: the same types with other settings"),
        (ready("A", version=2), "'arena' version 1 became 'arena' version 2"),
    ],
)
def test_a_difference_is_named(other: Application, expected: str) -> None:
    assert ready("A").difference(other) == expected


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "it ended with exit code 0"), (-9, "it was ended by SIGKILL"), (-199, "it was ended by signal 199")],
)
def test_exit_codes_as_people_read_them(code: int, text: str) -> None:
    assert describe_exit(code) == text
