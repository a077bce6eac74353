"""`python -m tests.machines.page`: write the pages in docs/design from the tables of the machines.

A test compares the pages with what this renders, so that it cannot fall behind the code.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from sojourn.handoff.local import LocalHandoff
from sojourn.handoff.machine import Event, Machine, State
from sojourn.handoff.path import SenderPath
from sojourn.handoff.replies import ReplyRelay
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

__all__ = ["PAGE", "REPLIES_PAGE", "SESSIONS_PAGE", "render", "render_replies", "render_sessions"]

PAGE = Path(__file__).parents[2] / "docs" / "design" / "handoff.md"
SESSIONS_PAGE = PAGE.with_name("sessions.md")
REPLIES_PAGE = PAGE.with_name("replies.md")

INTRODUCTION = """# The handoff machines

Generated from the tables in `framework/handoff` by `python -m tests.machines.page`; a test compares. Rule
numbers: [rules](../reference/rules.md).

One move of one unit is decided by two machines, `SourceHandoff` at the old owner and `TargetHandoff` at the
new one. They are synchronous: `handle(event, now)` returns the effects that a driver carries out, and
`deadline` names the one instant at which `DeadlineReached` is due. What is not in a table is a bug and tells
the last 50 events. `SenderPath` keeps one node's records for one object in order while the object moves.

Who does what in a move without trouble:

```mermaid
sequenceDiagram
    participant W as worker (source)
    participant S as SourceHandoff
    participant T as TargetHandoff
    participant L as Location Store
    S->>W: SealObject
    W-->>S: ObjectCaptured
    S->>T: 40 Restore request, 52 chunks
    Note over T: temporary queue first
    T->>L: ReadRow (the fence's version?)
    Note over T: verify, RestoreObject
    T-->>S: 30 relay-ready
    Note over S: accepted before D: the boundary
    S->>T: 31 relay (the hold), 34 cutover
    S->>T: follow frames
    T->>L: WriteOwner (CAS)
    Note over T: OpenDispatch: saved work, relay, temporary queue
    T-->>S: it is open (a hint)
    S->>L: ReadRow until it names the target
    Note over S: FollowOnly, then nothing is left
```

A move to another worker of the same node is the same protocol without a connection (B8.7). One machine,
`LocalHandoff`, takes its steps, since one supervisor sees both ends and has one place in its table for the object:
one hold is ingress hold and temporary queue, and the write of the owner is the boundary.

```mermaid
sequenceDiagram
    participant W as old worker
    participant M as LocalHandoff
    participant N as new worker
    participant L as Location Store
    M->>W: SealObject
    W-->>M: ObjectCaptured (the payload stays in the supervisor)
    M->>N: RestoreObject, dispatch closed
    N-->>M: ObjectRestored
    M->>L: WriteOwner: same owner, owner generation + 1
    Note over M: written: no way back
    M->>W: DropObject
    M->>N: OpenDispatch: saved work, then the hold
```

Three facts carry the safety argument of a move between nodes:

- The target writes the owner only under the row version that the source read before it began (R4.5.1). Any
  write of the source to that row, the fence above all (B6.7), makes that impossible for good.
- The source gives the object back only while it has not accepted relay-ready, and, unless a single request
  was refused, only behind a fence. Past the boundary no transition leads back.
- Whoever does not know an outcome reads the row. Nothing is decided by a clock alone.
"""

SESSIONS_INTRODUCTION = """# The session seal

Generated from the tables in `framework/session` by `python -m tests.machines.page`; a test compares. Rule
numbers: [rules](../reference/rules.md); the handoff itself: [handoff](handoff.md).

A client's socket stays where it is while an Actor that is bound to it moves (R7.1). The member that holds the
socket, the session owner, runs one `SessionSeal` for each binding. Whoever moves the Actor talks with it
through a `SessionContact`: the source asks for the seal and takes it back if the move fails, the target says
where the Actor is now.

```mermaid
sequenceDiagram
    participant C as client
    participant O as SessionSeal
    participant S as SourceHandoff
    participant T as TargetHandoff
    Note over S: AwaitTurnBoundary
    S->>O: 42 seal
    Note over O: what the client sends waits
    O-->>S: 43 sealed
    Note over S: SealObject: at most 1 s for a turn that began meanwhile
    S->>O: last push, then the same 42 again
    O->>C: last push
    O-->>S: 43 sealed
    S->>T: 40, 52; 30 back; 31, 34
    Note over T: CAS, OpenDispatch
    T->>O: 44 commit
    Note over O: switch route, submit what was held, unseal
    O->>T: held messages
```

What makes it safe:

- The source stops only behind a 43, and the cutover waits for the second 43: whatever the source pushed is at the
  session owner before the target can push anything (B11.3).
- 44 abort leaves the source only when its queue runs again for good, behind a fence where one was written (R7.2).
- Whatever gets lost, the seal ends after 3 s: the socket is closed with a code and a resume token, and what comes
  later is a Warning (R7.3).

Close codes: 4001, the seal ran out of time; 4002, the lease of the session owner is over.
"""


REPLIES_INTRODUCTION = """# Replies that moved

Generated from the table in `framework/handoff/replies.py` by `python -m tests.machines.page`; a test compares. Rule
numbers: [rules](../reference/rules.md); the bytes: [mesh](../reference/mesh.md#replies-that-moved).

A request that moves with its object ends on a node its requester never sent it to. One `ReplyRelay` there stands
for its reply until the requester's node has it (B7.1).

```mermaid
sequenceDiagram
    participant R as requester's node
    participant T as ReplyRelay
    participant B as Relocation Store
    T-)R: ordinary reply, at once
    T->>B: StoreReply
    B-->>T: BlobStored (or not)
    T-)R: 33, again on every new connection
    R-)T: 46, for whatever 33
    T->>B: DeleteReply
```

- The reply never waits for the store, and a reply that did not move never comes here.
- The first end counts at the requester; each later one is dropped and acknowledged.
- Above 16 MiB in memory the replies that are stored are let go of and read back when they are needed, 4 MiB at a time; above 16,384
  replies, or when the store has none of them, a new one is sent once, as any reply.
- When this node ends, its blobs stay: the requester's node looks there before it calls the request in doubt. So does the
  source of the move (R5.2); what it finds it repeats like a reply of its own, and deletes it only after the 46.
"""


def render_replies() -> str:
    """The page of the reply relay."""
    return "\n".join((REPLIES_INTRODUCTION, _section(ReplyRelay)))


def render_sessions() -> str:
    """The page of the session machines."""
    return "\n".join((SESSIONS_INTRODUCTION, *map(_section, (SessionSeal, SessionContact))))


def render() -> str:
    sections = (_section(machine) for machine in (SourceHandoff, TargetHandoff, LocalHandoff, SenderPath))
    return "\n".join((INTRODUCTION, *sections))


def _section(machine: type[Machine]) -> str:
    first = (machine.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {machine.__name__}", "", first, "", "```mermaid", "stateDiagram-v2"]
    lines.append(f"    [*] --> {machine.STATES[0].__name__}")
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for state in machine.STATES:
        for event in machine.EVENTS:
            rule = machine.rules.get((state, event))
            for goal in sorted(target.__name__ for target in rule.targets) if rule else ():
                if goal != state.__name__:
                    edges[state.__name__, goal].append(event.__name__)
    for (start, goal), events in edges.items():
        lines.append(f"    {start} --> {goal}: {', '.join(events)}")
    lines += ["```", "", "| state | phase | what it means |", "|---|---|---|"]
    for state in machine.STATES:
        phase = state.phase if isinstance(state.phase, str) else "CutoverReceived or CutoverFallback"
        lines.append(f"| {state.__name__} | {phase} | {_prose(state)} |")
    lines += ["", "| state | event | leads to |", "|---|---|---|"]
    for state in machine.STATES:
        for event in machine.EVENTS:
            cell = _cell(machine, state, event)
            if cell:
                lines.append(f"| {state.__name__} | {event.__name__} | {cell} |")
    lines.append("")
    return "\n".join(lines)


def _cell(machine: type[Machine], state: type[State], event: type[Event]) -> str:
    rule = machine.rules.get((state, event))
    if rule is None:
        return ""
    if not rule.targets:
        return f"*nothing: {machine.IGNORED[state][event]}*"
    goals = [goal.__name__ for goal in machine.STATES if goal in rule.targets]
    return ", ".join("stays" if goal == state.__name__ else f"**{goal}**" for goal in goals)


def _prose(state: type[State]) -> str:
    text = " ".join((state.__doc__ or "").split())
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    SESSIONS_PAGE.write_text(render_sessions(), encoding="utf-8")
    REPLIES_PAGE.write_text(render_replies(), encoding="utf-8")
    print(f"wrote {PAGE}, {SESSIONS_PAGE.name} and {REPLIES_PAGE.name}")
