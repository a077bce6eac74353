// Frozen records (W4): one message or event as it waits.
import {
  actorRef, actorRouteFence, membership, metadataFrame, objectIdentity, operationIdOrZero, payloadEnvelope,
  relocationId, spotRouteFence,
} from "./blocks.mjs";
import {
  block, bool8, enumeration, nonzero, optional16, range, Reader, rid, text16, text8, union, Writer,
} from "./bytes.mjs";
import { checkResult, failureCode, terminalResult } from "./results.mjs";

const nodeFields = [
  ["nodeRid", rid],
  ["nodeGeneration", nonzero],
  ["ownerId", text8],
  ["ownerLeaseGeneration", nonzero],
];

const source = union(1, {
  1: ["node", block(nodeFields)],
  2: ["spot", block([...nodeFields, ["spotId", text8]])],
  3: ["actor", block([...nodeFields, ["actorRef", actorRef]])],
  4: [
    "boundSession",
    block(
      [
        ...nodeFields,
        ["actorRef", actorRef],
        ["sessionRid", rid],
        ["bindingGeneration", nonzero],
        ["sessionSequence", nonzero],
      ],
    ),
  ],
});

const actorControl = union(1, {
  1: ["created", block([["current", membership]])],
  2: ["joined", block([["previous", optional16(membership)], ["current", membership]])],
  3: ["left", block([["previous", membership], ["current", membership]])],
  4: ["disconnected", block([["current", membership]])],
  5: ["destroyed", block([["previous", membership]])],
});

const destination = union(1, {
  1: ["node", block([["nodeRid", rid]])],
  2: ["channel", block([["channelName", text8]])],
  3: ["spot", block([["spotRouteFence", spotRouteFence]])],
  4: ["actor", block([["actorRouteFence", actorRouteFence]])],
  5: ["boundSession", block([["actorRouteFence", actorRouteFence], ["bindingGeneration", nonzero]])],
});

const instanceRoute = union(1, {
  1: [
    "ready",
    block([
      ["targetNodeRid", rid],
      ["targetNodeGeneration", nonzero],
      ["targetSpotId", text8],
      ["objectGeneration", nonzero],
      ["ownerId", text8],
      ["authorityOwnerGeneration", nonzero],
      ["leaseGeneration", nonzero],
      ["storeVersion", text16],
      ["instanceIntent", bool8],
      ["deadlineUnixMs", nonzero],
    ]),
  ],
  2: [
    "coldActivation",
    block([
      ["targetNodeRid", rid],
      ["targetNodeGeneration", nonzero],
      ["targetSpotId", text8],
      ["targetMeshName", text8],
      ["stableType", text8],
      ["targetDescriptorVersion", text8],
      ["deadlineUnixMs", nonzero],
    ]),
  ],
});

const payload = ["payload", payloadEnvelope];

const completion = {
  read(reader) {
    const starts = {};
    const value = {};
    const types = { terminalResult, failureCode, hasPayload: bool8 };
    for (const [name, type] of Object.entries(types)) {
      starts[name] = reader.at;
      value[name] = reader.named(name, () => type.read(reader));
    }
    checkResult(reader, value, starts, value.hasPayload);
    value.payload = value.hasPayload ? reader.named("payload", () => payloadEnvelope.read(reader)) : null;
    return value;
  },
  write(writer, value) {
    terminalResult.write(writer, value.terminalResult);
    failureCode.write(writer, value.failureCode);
    bool8.write(writer, value.hasPayload);
    if (value.hasPayload) payloadEnvelope.write(writer, value.payload);
  },
};

// kind: body, operation kinds, operation id ("zero", "nonzero", or "asked": nonzero exactly when asked), may have
// metadata, source tag
const KINDS = {
  1: [block([payload]), [0], "zero", true, null],
  2: [block([payload]), [1], "nonzero", true, null],
  3: [block([["channelName", text8], payload]), [0], "zero", true, null],
  4: [block([["channelName", text8], payload]), [2], "nonzero", true, null],
  5: [block([["spotRouteFence", spotRouteFence], payload]), [0], "nonzero", true, null],
  6: [block([["spotRouteFence", spotRouteFence], payload]), [3], "nonzero", true, null],
  7: [block([["channelName", text8], ["topic", text8], payload]), [0], "zero", true, null],
  8: [block([["actorControl", actorControl]]), [0, 6, 7, 8], "asked", false, 1],
  9: [block([["actorRouteFence", actorRouteFence], payload]), [0], "nonzero", true, null],
  10: [block([["actorRouteFence", actorRouteFence], payload]), [4], "nonzero", true, null],
  11: [completion, range(1, 15), "nonzero", false, 1],
  12: [block([["destination", destination]]), [0], "zero", false, 1],
  13: [
    block(
      [
        ["phase", enumeration(1, range(0, 9))],
        ["role", enumeration(1, [1, 2, 3])],
        ["relocationId", relocationId],
        ["object", objectIdentity],
        ["terminalResult", terminalResult],
        ["failureCode", failureCode],
      ],
      (reader, value, starts) => checkResult(reader, value, starts, false),
    ),
    [0],
    "zero",
    false,
    1,
  ],
  14: [
    block([
      ["instanceRoute", instanceRoute],
      ["sourceNodeGeneration", nonzero],
      ["innerOperation", enumeration(1, [1, 2])],
      payload,
    ]),
    [0, 12],
    "asked",
    true,
    null,
  ],
};

const recordKind = enumeration(1, range(1, 14));
const operationKind = enumeration(4, range(0, 15));
const REPLIED = [1, 2, 3, 4, 12];

function readReplyRoute(reader, operation) {
  const at = reader.at;
  const length = reader.number(2);
  const wanted = REPLIED.includes(operation) ? 8 : 0;
  if (length !== wanted) reader.fail("invalid-body-length", at, `${length}, not ${wanted}`);
  return wanted ? { replyRouteId: reader.named("replyRouteId", () => nonzero.read(reader)) } : {};
}

export const frozenRecord = {
  read(reader) {
    const starts = {};
    const field = (name, read) => {
      starts[name] = reader.at;
      return reader.named(name, read);
    };
    const refuse = (name, detail) => reader.fail(
      "invalid-field",
      starts[name],
      detail,
      `${reader.path}.${name}`.replace(/^\./, ""),
    );
    const value = { recordKind: field("recordKind", () => recordKind.read(reader)) };
    const [body, operations, idRule, mayHaveMetadata, sourceTag] = KINDS[value.recordKind];
    value.source = field("source", () => source.read(reader));
    if (sourceTag !== null && value.source.tag !== sourceTag) refuse("source", "only a node sends this");
    value.hasMetadata = field("hasMetadata", () => bool8.read(reader));
    if (value.hasMetadata && !mayHaveMetadata) refuse("hasMetadata", "this kind has no metadata");
    value.metadata = value.hasMetadata ? field("metadata", () => metadataFrame.read(reader)) : null;
    value.operationId = field("operationId", () => operationIdOrZero.read(reader));
    value.operationKind = field("operationKind", () => operationKind.read(reader));
    if (!operations.includes(value.operationKind)) refuse("operationKind", "not an operation of this kind");
    const there = value.operationId.high !== 0n || value.operationId.low !== 0n;
    const wanted = idRule === "nonzero" || (idRule === "asked" && value.operationKind !== 0);
    if (there !== wanted) refuse("operationId", wanted ? "zero" : "not zero");
    value.replyRoute = field("replyRoute", () => readReplyRoute(reader, value.operationKind));
    value.body = field("body", () => body.read(reader));
    if (value.recordKind === 14 && (value.body.innerOperation === 2) !== (value.operationKind === 12)) {
      refuse("operationKind", "inner operation and operation kind disagree");
    }
    return value;
  },
  write(writer, value) {
    const [body] = KINDS[value.recordKind];
    recordKind.write(writer, value.recordKind);
    source.write(writer, value.source);
    bool8.write(writer, value.hasMetadata);
    if (value.hasMetadata) metadataFrame.write(writer, value.metadata);
    operationIdOrZero.write(writer, value.operationId);
    operationKind.write(writer, value.operationKind);
    const asked = REPLIED.includes(value.operationKind);
    writer.number(asked ? 8 : 0, 2);
    if (asked) nonzero.write(writer, value.replyRoute.replyRouteId);
    body.write(writer, value.body);
  },
};

export function decodeRecord(octets, trace = null) {
  const reader = new Reader(octets, trace);
  const value = frozenRecord.read(reader);
  reader.finish();
  return value;
}

export function encodeRecord(value) {
  const writer = new Writer();
  frozenRecord.write(writer, value);
  return writer.joined();
}

export function recordDeadline(record) {
  const found = (record.metadata ?? []).find((entry) => entry.key === "deadline-unix-ms");
  return found === undefined ? null : BigInt(found.value);
}
