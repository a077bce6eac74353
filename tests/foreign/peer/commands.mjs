// Commands (W6): the records of the relocation contract.
import {
  actorRef, actorRouteFence, coordinatorFence, generationFence, messageFollowEnvelope, objectIdentity, operationId,
  payloadEnvelope, relocationId, relocationIdentity, requestSourceFence, spotRef, spotRouteFence, targetFence,
} from "./blocks.mjs";
import {
  block, bool8, bytes32, enumeration, nonzero, optional16, ordinal, ranged, ranged64, Reader, rid, text8, u32, union,
  WireError, Writer,
} from "./bytes.mjs";
import { frozenRecord } from "./records.mjs";
import { checkResult, failureCode, realFailure, terminalResult } from "./results.mjs";

const role = (...taken) => ({
  read(reader) {
    const at = reader.at;
    const value = reader.number(1);
    if (value < 1 || value > 3) reader.fail("invalid-field", at, `no role ${value}`);
    if (!taken.includes(value)) reader.fail("wrong-role", at, `${value}`);
    return value;
  },
  write: (writer, value) => writer.number(value, 1),
});

const sessionFields = [
  ["sessionOwnerNodeRid", rid],
  ["sessionOwnerNodeGeneration", nonzero],
  ["sessionOwnerId", text8],
  ["sessionOwnerLeaseGeneration", nonzero],
  ["sessionRid", rid],
  ["bindingGeneration", nonzero],
];

const routeUpdate = union(1, {
  1: [
    "commit",
    block([
      ["previousAuthorityOwnerGeneration", nonzero],
      ["targetAuthorityOwnerGeneration", nonzero],
      ["targetNodeRid", rid],
      ["targetNodeGeneration", nonzero],
      ["targetOwnerLeaseGeneration", nonzero],
    ]),
  ],
  2: ["abort", block([["currentAuthorityOwnerGeneration", nonzero]])],
});

const joinResult = union(4, {
  0: [
    "accepted",
    block([["spotRef", spotRef], ["membershipEpoch", nonzero], ["receiveChunkLimitBytes", ranged(4, 0, 67108864)]]),
  ],
  1: ["rejected", block([["spotRef", optional16(spotRef)]])],
});

const completion = union(1, {
  1: ["readyBarrier", block([["generationFence", generationFence]])],
  2: ["activationFailure", block([["generationFence", generationFence]])],
});

const replyContext = union(1, {
  1: ["coldActivation", block([["completion", completion]])],
  2: [
    "maintenanceRelocation",
    block([["relocationIdentity", relocationIdentity], ["participantId", nonzero], ["sequence", nonzero]]),
  ],
});

const roleOfUpdate = (reader, value, starts) => {
  if (value.senderRole !== (value.routeUpdate.tag === 1 ? 2 : 1)) {
    reader.fail("wrong-role", starts.senderRole, "commit from the source, or abort from the target", "senderRole");
  }
};

const result = (reader, value, starts) => checkResult(reader, value, starts, false);
const PAYLOAD_MAX = 274877906944n;

// number: name, body, whether a payload may follow as a second part
const COMMANDS = {
  20: [
    "actorJoinReply",
    block(
      [
        ["correlation", nonzero],
        ["terminalResult", terminalResult],
        ["failureCode", failureCode],
        ["joinResult", joinResult],
      ],
      result,
    ),
    true,
  ],
  28: [
    "actorJoinRequest",
    block(
      [
        ["correlation", nonzero],
        ["actorRouteFence", actorRouteFence],
        ["entry", bool8],
        ["spotRouteFence", spotRouteFence],
      ],
    ),
    true,
  ],
  30: [
    "relocationReady",
    block(
      [
        ["relocationIdentity", relocationIdentity],
        ["target", targetFence],
        ["object", objectIdentity],
        ["senderRole", role(2)],
      ],
    ),
    false,
  ],
  31: [
    "relocationData",
    block(
      [
        ["relocationIdentity", relocationIdentity],
        ["senderRole", role(1)],
        ["object", objectIdentity],
        ["frozenRecord", frozenRecord],
      ],
    ),
    false,
  ],
  33: [
    "replyRelay",
    block(
      [
        ["operationId", operationId],
        ["replyRouteId", nonzero],
        ["context", replyContext],
        ["terminalResult", terminalResult],
        ["failureCode", failureCode],
      ],
      result,
    ),
    true,
  ],
  34: [
    "relocationCutover",
    block(
      [
        ["relocationIdentity", relocationIdentity],
        ["senderRole", role(1)],
        ["object", objectIdentity],
        ["boundaryRecordCount", ordinal],
        ["boundaryChecksumCrc32c", u32],
      ],
    ),
    false,
  ],
  40: [
    "relocationPrepare",
    block([
      ["relocationIdentity", relocationIdentity],
      ["target", targetFence],
      ["initiatorRole", role(1)],
      ["object", objectIdentity],
      ["sourceNodeRid", rid],
      ["sourceNodeGeneration", nonzero],
      ["payloadTotalLength", ranged64(0n, PAYLOAD_MAX)],
      ["payloadChunkCount", u32],
      ["payloadChecksumCrc32c", u32],
      ["applicationVersion", ordinal],
    ]),
    false,
  ],
  42: [
    "sessionRelocationSeal",
    block(
      [
        ["relocationId", relocationId],
        ["coordinatorFence", coordinatorFence],
        ["senderRole", role(1)],
        ["actorRouteFence", actorRouteFence],
        ...sessionFields,
      ],
    ),
    false,
  ],
  43: [
    "sessionRelocationSealed",
    block(
      [
        ["relocationId", relocationId],
        ["coordinatorFence", coordinatorFence],
        ["actorRouteFence", actorRouteFence],
        ...sessionFields,
      ],
    ),
    false,
  ],
  44: [
    "sessionRelocationRoute",
    block(
      [
        ["relocationId", relocationId],
        ["coordinatorFence", coordinatorFence],
        ["senderRole", role(1, 2)],
        ["actorRef", actorRef],
        ...sessionFields,
        ["routeUpdate", routeUpdate],
      ],
      roleOfUpdate,
    ),
    false,
  ],
  46: [
    "replyRelayAck",
    block(
      [
        ["relocationId", relocationId],
        ["coordinatorFence", coordinatorFence],
        ["operationId", operationId],
        ["replyRouteId", nonzero],
        ["requestSourceFence", requestSourceFence],
        ["status", enumeration(1, [1, 2])],
      ],
    ),
    false,
  ],
  50: ["messageFollow", block([["envelope", messageFollowEnvelope]]), false],
  52: [
    "relocationState",
    block(
      [
        ["relocationIdentity", relocationIdentity],
        ["senderRole", role(1)],
        ["object", objectIdentity],
        ["chunkOrdinal", u32],
        ["chunkData", bytes32(67108864)],
      ],
    ),
    false,
  ],
  53: [
    "relocationFailed",
    block(
      [
        ["relocationIdentity", relocationIdentity],
        ["target", targetFence],
        ["object", objectIdentity],
        ["senderRole", role(2)],
        ["failureCode", realFailure],
      ],
    ),
    false,
  ],
};

function head(reader) {
  const fixed = (name, read) => reader.named(name, read);
  fixed("magic", () => {
    if (reader.number(2) !== 0x5a4d) reader.fail("invalid-magic", 0, "not a command");
  });
  fixed("major", () => {
    if (reader.number(1) !== 1) reader.fail("unsupported-major", 2, "another major version");
  });
  const number = fixed("command", () => {
    const found = reader.number(1);
    if (!COMMANDS[found]) reader.fail("unknown-command", 3, `${found}`);
    return found;
  });
  fixed("flags", () => {
    if (reader.number(1) !== 0) reader.fail("forbidden-flag", 4, "a flag");
  });
  return number;
}

export function decodeCommand(parts, trace = null) {
  const reader = new Reader(parts[0], trace);
  const number = head(reader);
  const [name, body, mayHavePayload] = COMMANDS[number];
  const value = { command: number, name, ...body.read(reader) };
  reader.finish();
  if (parts.length > (mayHavePayload ? 2 : 1)) throw new WireError("trailing-byte", 0, "", "a part too many");
  if (mayHavePayload) {
    value.payload = null;
    if (parts.length === 2) {
      const further = new Reader(parts[1]);
      value.payload = further.named("payload", () => payloadEnvelope.read(further));
      further.finish();
    }
  }
  return value;
}

export function encodeCommand(value) {
  const writer = new Writer();
  const [, body, mayHavePayload] = COMMANDS[value.command];
  writer.bytes(Buffer.from([0x5a, 0x4d, 1, value.command, 0]));
  body.write(writer, value);
  const parts = [writer.joined()];
  if (mayHavePayload && value.payload !== null && value.payload !== undefined) {
    const further = new Writer();
    payloadEnvelope.write(further, value.payload);
    parts.push(further.joined());
  }
  return parts;
}
