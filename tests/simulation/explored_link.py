"""The link of the explored world: frames in order, cuts with an unknown suffix, echoes, ends of nodes.

A frame is its kind, the connection it was sent on (0: whichever stands) and its contents.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.explored_states import records_in
from tests.simulation.explored_store import WRITES, Store

__all__ = ["CONTROL", "Frame", "Link", "peer_of"]

Frame = tuple[Any, ...]
CONTROL = frozenset(("restore", "chunk", "cutover", "withdrawn", "ready", "failed", "told"))
"""What may come twice, or late: records have their place on their connection."""


def peer_of(who: str) -> str:
    """The other node."""
    return "T" if who == "S" else "S"


class Link(Store):
    """What the model knows of the link. Its containers are replaced, never changed in place, but for the dicts."""

    link: int | None
    """The connection that stands, None while it is cut."""
    links: int
    unbroken: bool
    """No connection was cut so far: across a cut no order is promised (B9.4)."""
    frames: dict[str, tuple[Frame, ...]]
    """On their way, by sender, oldest first; the last of a connection is `("lost", number)`."""
    unsent: tuple[Frame, ...]
    """Sent by the source on a connection whose end it has not noticed."""
    outbox: dict[str, tuple[str, ...]]
    """Records that wait for a connection, by sender."""
    echoes: tuple[tuple[str, Frame], ...]
    """Frames, by sender, that will come once more, whenever that is."""
    cut_off: tuple[tuple[str, Frame], ...]
    """Control frames that a cut took, and that might still come late; not kept when no fault is left."""
    dead: frozenset[str]
    gone: bool
    """The source knows that the target's run has ended."""
    lost: frozenset[str]
    """Records that a connection or a node took with it, so far."""
    machines: dict[str, Any]

    def unnoticed(self, who: str) -> int | None:
        """The connection whose end this node will still notice."""
        for frame in self.frames[peer_of(who)]:
            if frame[0] == "lost":
                return int(frame[1])
        return None

    def send(self, who: str, kind: str, connection: int, *contents: Any) -> None:
        frame = (kind, connection, *contents)
        other = peer_of(who)
        if self.link is not None:
            if connection in (0, self.link):
                self.frames[who] = (*self.frames[who], frame)
        elif who == "S" and self.unnoticed(who) is not None:
            if connection in (0, self.unnoticed(who)):
                self.unsent = (*self.unsent, frame)
        elif kind == "follow":
            if other in self.dead:
                self.lost |= {contents[0]}
            else:
                self.outbox[who] = (*self.outbox[who], contents[0])

    def cut(self, keep_s: int, keep_t: int) -> None:
        self.spend()
        for who, keep in (("S", keep_s), ("T", keep_t)):
            self.end_frames(who, keep)
        self.link = None
        if not self.faults:
            self.cut_off = ()

    def end_frames(self, who: str, keep: int) -> None:
        """What is behind these first frames never arrives, but for the end of the connection."""
        self.unbroken = False
        dropped = self.frames[who][keep:]
        self.lost |= {frame[2] for frame in dropped if frame[0] in ("relay", "follow")}
        self.cut_off += tuple((who, frame) for frame in dropped if frame[0] in CONTROL)
        self.frames[who] = (*self.frames[who][:keep], ("lost", self.link))

    def die(self, who: str, keep: int, call_is_late: bool) -> None:
        """A node ends; of what it sent these first frames arrive. A write under way is carried out late or never."""
        self.spend(dooms=True)
        other = peer_of(who)
        self.lost |= {frame[2] for frame in self.frames[other] if frame[0] in ("relay", "follow")}
        self.frames[other] = ()
        if self.link is not None:
            self.end_frames(who, keep)
            self.link = None
        call = self.calls.pop(who, None)
        if call_is_late and call is not None:
            self.late = (*self.late, call)
        self.lost |= {*records_in(self.machines[who].state), *self.outbox[who], *self.outbox[other]}
        if who == "S":
            self.lost |= {frame[2] for frame in self.unsent if frame[0] in ("relay", "follow")}
            self.unsent = ()
        self.outbox[who] = self.outbox[other] = ()
        self.open[who] = False
        self.dead |= {who}
        self.echoes = tuple(each for each in self.echoes if each[0] == who)
        self.cut_off = ()

    def writes_now(self, who: str) -> bool:
        """Whether a write of this node is at the store and not carried out."""
        call = self.calls.get(who)
        return call is not None and call.answer is None and call.kind in WRITES
