"""Which members there are, as one node knows them."""

from __future__ import annotations

import pytest
from sojourn.errors import NotConfigured, Unavailable
from sojourn.ids import NodeRun
from sojourn.rows import HostState, NodeDescriptor
from sojourn.workers.roster import Roster


def node(
    name: str, generation: int = 1, *, state: HostState = HostState.SERVING, client: bool = False
) -> NodeDescriptor:
    return NodeDescriptor(
        rid=name.encode(),
        generation=generation,
        owner_id=f"{name}@{generation}",
        lease_generation=generation,
        application="app",
        application_version=1,
        endpoints=() if client else (f"{name}:7000",),
        state=state,
        client=client,
    )


def test_a_scan_replaces_what_is_not_connected() -> None:
    roster = Roster()
    for member in (node("gone"), node("young"), node("there", state=HostState.DRAINING)):
        roster.heard(member)
    connected = {node("young").run, node("there").run}
    roster.refresh([node("new"), node("there")], connected)
    # What a peer said over its link is newer than its row; a row may also be younger than the scan.
    assert {member.rid: member.state for member in roster.all()} == {
        b"young": HostState.SERVING,
        b"there": HostState.DRAINING,
        b"new": HostState.SERVING,
    }
    roster.refresh([node("there")], ())
    assert [(member.rid, member.state) for member in roster.all()] == [(b"there", HostState.SERVING)]


def test_a_connected_run_that_has_not_announced_itself_is_taken_from_its_row() -> None:
    roster = Roster()
    roster.refresh([node("n1")], [node("n1").run])
    assert roster.get(NodeRun(b"n1", 1)) == node("n1")


def test_clients_are_members_and_no_nodes() -> None:
    roster = Roster()
    roster.heard(node("n1"))
    roster.heard(node("c", client=True))
    assert [member.rid for member in roster.nodes()] == [b"n1"]
    assert len(roster.all()) == 2
    with pytest.raises(Unavailable, match="is not known or ended"):
        roster.endpoint(node("c", client=True).run)


def test_a_node_is_found_by_its_name_and_dialled_at_its_endpoint() -> None:
    roster = Roster()
    roster.heard(node("n1", 1))
    roster.heard(node("n1", 2))
    assert roster.by_rid(b"n1").generation == 2
    assert roster.endpoint(NodeRun(b"n1", 2)) == "n1:7000"
    roster.gone(NodeRun(b"n1", 2))
    roster.gone(NodeRun(b"n1", 2))
    assert roster.by_rid(b"n1").generation == 1
    with pytest.raises(NotConfigured, match="no node has the RID 'n9'; known: n1"):
        roster.by_rid(b"n9")
    with pytest.raises(NotConfigured, match="known: none"):
        Roster().by_rid(b"n9")


def test_a_node_that_ended_is_told_from_a_name_that_nobody_had(monkeypatch: pytest.MonkeyPatch) -> None:
    roster = Roster()
    for member in (node("n1"), node("n2"), node("n3"), node("c", client=True)):
        roster.heard(member)
    roster.gone(node("n1").run)
    roster.refresh([node("n3")], ())
    for name in ("n1", "n2"):
        with pytest.raises(Unavailable, match=f"node '{name}' has ended; running: n3") as ended:
            roster.by_rid(name.encode())
        assert ended.value.applied == "no"
    with pytest.raises(NotConfigured, match="no node has the RID 'c'"):
        roster.by_rid(b"c")
    roster.heard(node("n1", 2))
    assert roster.by_rid(b"n1").generation == 2
    monkeypatch.setattr("sojourn.workers.roster.FORMER_MAX", 2)
    for name in ("n3", "n4"):
        roster.heard(node(name))
        roster.gone(node(name).run)
    with pytest.raises(NotConfigured):  # so many are remembered: the one that ended first is not
        roster.by_rid(b"n2")


@pytest.mark.parametrize("present", [1, 9])
def test_the_run_that_is_connected_is_meant_whichever_has_the_greater_generation(present: int) -> None:
    """The clock that generations are made of may have been set back (B1.1)."""
    roster = Roster()
    for generation in (1, 9):
        roster.heard(node("n1", generation))
    assert roster.by_rid(b"n1").generation == 9  # the last one heard of
    assert roster.by_rid(b"n1", [NodeRun(b"n1", present)]).generation == present


def test_a_run_that_is_not_accepted_yet_is_not_meant_and_replaces_nobody() -> None:
    """It may be refused as the twin of the one that serves."""
    roster = Roster()
    serving, twin = node("n1", 5), node("n1", 9, state=HostState.PREPARING)
    for member in (serving, twin):
        roster.heard(member)
    assert roster.by_rid(b"n1", [twin.run]) == serving
    assert roster.replaced_by(twin, [twin.run]) == []
    roster.refresh([serving, twin], [twin.run])
    assert roster.get(serving.run) == serving


@pytest.mark.parametrize("generation", [1, 9])
def test_an_accepted_run_replaces_the_unconnected_ones_of_its_rid(generation: int) -> None:
    roster = Roster()
    for member in (node("n1", 5), node("n2", 5), node("n1", generation)):
        roster.heard(member)
    came = node("n1", generation)
    assert roster.replaced_by(came, [came.run]) == [node("n1", 5).run]
    assert roster.replaced_by(came, [came.run, node("n1", 5).run]) == []
    roster.refresh([node("n1", 5), node("n2", 5), came], [came.run])
    assert {member.run for member in roster.nodes()} == {came.run, node("n2", 5).run}


def test_the_row_of_a_former_run_does_not_bring_it_back() -> None:
    """It stands until its time is over, while the later run is connected and has announced itself (B6.1)."""
    roster = Roster()
    roster.heard(node("n1", 2))
    roster.heard(node("n2", 1))
    roster.refresh([node("n1", 1), node("n1", 2), node("n2", 1), node("n2", 2)], [node("n1", 2).run])
    # Nothing is known yet of the later run of n2 but its row: the former one may be alive.
    assert sorted(map(str, (member.run for member in roster.nodes()))) == ["n1@2", "n2@1", "n2@2"]


def test_a_former_run_is_forgotten_once_the_later_one_is_connected() -> None:
    roster = Roster()
    roster.refresh([node("n1", 1)], ())
    roster.refresh([node("n1", 1)], [node("n1", 2).run])
    assert roster.get(node("n1", 1).run) == node("n1", 1)  # nothing is known of the other one yet
    roster.heard(node("n1", 2))
    roster.refresh([node("n1", 1)], [node("n1", 2).run])
    assert roster.get(node("n1", 1).run) is None
    roster.refresh([node("n1", 1)], [node("n1", 1).run, node("n1", 2).run])
    assert roster.get(node("n1", 1).run) == node("n1", 1)  # what is connected has not ended
