"""Two live nodes of one RID: who starts second is refused (B1.1).

Owns how a live twin is recognised: its descriptor, its lease, and that it answers. A lease alone does not tell,
since it outlives a node that died and is started again.
"""

from __future__ import annotations

from sojourn.errors import NotConfigured
from sojourn.ids import NodeRun
from sojourn.location import Found, LocationStore
from sojourn.rows import NODE_PREFIX, HostState, NodeDescriptor, decode_descriptor, lease_row_key
from sojourn.workers.links import Links

__all__ = ["read_descriptors", "refuse_twin"]


async def read_descriptors(store: LocationStore) -> list[NodeDescriptor]:
    """Every member's descriptor.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    found: list[NodeDescriptor] = []
    cursor: str | None = None
    while True:
        page = await store.scan(NODE_PREFIX, cursor)
        found.extend(decode_descriptor(row.value) for row in page.rows)
        cursor = page.cursor
        if cursor is None:
            return found


async def refuse_twin(store: LocationStore, links: Links, own: NodeRun) -> None:
    """Refuse to start while another run of this RID is alive: its lease stands and it answers where it is dialled.

    Called before this run writes anything, and again after it took its lease: of two that start at the same
    moment the one with the greater generation is refused, whichever that is.

    Raises:
        NotConfigured: there is one; says where, and what to do.
        StoreUnavailable: the store does not answer.
    """
    for twin in await read_descriptors(store):
        if twin.rid != own.rid or twin.generation == own.generation or not twin.endpoints:
            continue
        if twin.state is HostState.PREPARING and twin.generation > own.generation:
            continue  # it is refused itself
        lease = lease_row_key(twin.owner_id, twin.lease_generation)
        if not isinstance(await store.read(lease), Found):
            continue
        endpoint = twin.endpoints[0]
        if await links.answers(twin.run, endpoint):
            rid = own.rid.decode("utf-8", "backslashreplace")
            raise NotConfigured(
                f"a node with the RID {rid!r} runs already, at {endpoint}: every node of a cluster has a RID of its "
                "own, so give this one another (--rid), or stop that one first"
            )
