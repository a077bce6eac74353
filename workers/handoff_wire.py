"""Between the handoff machines' terms and the bytes of `wire.md`: identities, commands, row facts.

Owns the conversions both drivers share. Knows nothing about connections or time.
"""

from __future__ import annotations

from sojourn.handoff.terms import HandoffIdentity, Manifest
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, key_id, spot_key
from sojourn.wire import (
    ActorIdentity,
    AttemptFrames,
    CoordinatorFence,
    InstanceSpotIdentity,
    RelocationFailed,
    RelocationId,
    RelocationIdentity,
    RelocationPrepare,
    TargetFence,
    UserSpotIdentity,
    encode_command,
)
from sojourn.wire.blocks import ObjectIdentity
from sojourn.wire.results import FailureCode

__all__ = ["HandoffWire", "identity_of", "manifest_of", "object_key_of"]


def identity_of(wire: RelocationIdentity) -> HandoffIdentity:
    """The machines' identity of a wire identity."""
    fence = wire.coordinator_fence
    return HandoffIdentity(
        (wire.relocation_id.high, wire.relocation_id.low),
        wire.target_attempt_generation,
        fence.owner_id,
        fence.lease_generation,
        NodeRun(fence.node_rid, fence.node_generation),
        fence.expected_authority_store_version,
    )


def manifest_of(prepare: RelocationPrepare) -> Manifest:
    """What command 40 says about the payload."""
    return Manifest(
        prepare.payload_total_length,
        prepare.payload_chunk_count,
        prepare.payload_checksum_crc32c,
        prepare.application_version,
    )


def object_key_of(identity: ObjectIdentity) -> ObjectKey:
    """The object key behind an object identity."""
    if isinstance(identity, ActorIdentity):
        return actor_key(identity.actor_id)
    return spot_key(identity.spot_id)


class HandoffWire:
    """Makes every command of one handoff.

    Attributes:
        identity: the relocation identity.
        frames: the commands that differ only in their end, made and recognised.
    """

    __slots__ = ("_object", "_target", "frames", "identity")

    def __init__(
        self, identity: RelocationIdentity, target: TargetFence, object_identity: ObjectIdentity
    ) -> None:
        """What the commands have in common.

        Raises:
            WireError: a value out of range.
        """
        self.identity = identity
        self._target = target
        self._object = object_identity
        self.frames = AttemptFrames(identity, target, object_identity)

    @classmethod
    def of_source(
        cls,
        identity: HandoffIdentity,
        target: TargetFence,
        key: ObjectKey,
        kind: ObjectKind,
        stable_type: str,
        object_generation: int,
        owner_generation: int,
    ) -> HandoffWire:
        """What a source fixes when a handoff starts."""
        wire = RelocationIdentity(
            RelocationId(*identity.relocation_id),
            identity.attempt,
            CoordinatorFence(
                identity.owner_id,
                identity.lease_generation,
                identity.source.rid,
                identity.source.generation,
                identity.expected_version,
            ),
        )
        named: ObjectIdentity
        if kind is ObjectKind.ACTOR:
            named = ActorIdentity(key_id(key), object_generation, owner_generation)
        elif kind is ObjectKind.USER_SPOT:
            named = UserSpotIdentity(key_id(key), object_generation, owner_generation)
        else:
            named = InstanceSpotIdentity(stable_type, key_id(key), object_generation)
        return cls(wire, target, named)

    def prepare(self, source: NodeRun, manifest: Manifest) -> list[bytes]:
        """Command 40."""
        return encode_command(
            RelocationPrepare(
                identity=self.identity,
                target=self._target,
                object=self._object,
                source_node_rid=source.rid,
                source_node_generation=source.generation,
                payload_total_length=manifest.total_length,
                payload_chunk_count=manifest.chunk_count,
                payload_checksum_crc32c=manifest.checksum,
                application_version=manifest.application_version,
            )
        )

    def failed(self, code: int) -> list[bytes]:
        """Command 53."""
        return encode_command(
            RelocationFailed(
                identity=self.identity,
                target=self._target,
                object=self._object,
                failure_code=FailureCode(code),
            )
        )
