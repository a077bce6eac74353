// The shared blocks of W2, the payload envelope and the metadata frame.
import {
  block, bytes32, metadataValue, nonzero, ordinal, ranged, rid, text16, text8, u32, u64, union, versioned,
} from "./bytes.mjs";

const notBothZero = (reader, value, starts) => {
  if (value.high === 0n && value.low === 0n) {
    reader.fail("invalid-field", starts.high, "an id of zero", `${reader.path}.high`.replace(/^\./, ""));
  }
};

export const relocationId = block([["high", u64], ["low", u64]], notBothZero);
export const operationId = block([["high", u64], ["low", u64]], notBothZero);
export const operationIdOrZero = block([["high", u64], ["low", u64]]);

export const coordinatorFence = block([
  ["ownerId", text8],
  ["leaseGeneration", nonzero],
  ["nodeRid", rid],
  ["nodeGeneration", nonzero],
  ["expectedAuthorityStoreVersion", text16],
]);

export const targetFence = block([
  ["nodeRid", rid],
  ["nodeGeneration", nonzero],
  ["ownerId", text8],
  ["ownerLeaseGeneration", nonzero],
]);

export const requestSourceFence = block([
  ["ownerId", text8],
  ["ownerLeaseGeneration", nonzero],
  ["nodeRid", rid],
  ["nodeGeneration", nonzero],
]);

export const relocationIdentity = block([
  ["relocationId", relocationId],
  ["targetAttemptGeneration", nonzero],
  ["coordinatorFence", coordinatorFence],
]);

export const actorRef = block([["actorId", text8], ["objectGeneration", nonzero]]);
export const spotRef = block([["spotId", text8], ["objectGeneration", nonzero]]);

const fenceOf = (name, type) =>
  block([
    [name, type],
    ["targetNodeRid", rid],
    ["targetNodeGeneration", nonzero],
    ["expectedAuthorityOwnerGeneration", nonzero],
    ["expectedOwnerLeaseGeneration", nonzero],
  ]);

export const actorRouteFence = fenceOf("actorRef", actorRef);
export const spotRouteFence = fenceOf("spotRef", spotRef);

export const generationFence = block([
  ["objectGeneration", nonzero],
  ["ownerId", text8],
  ["authorityOwnerGeneration", nonzero],
  ["leaseGeneration", nonzero],
  ["storeVersion", text16],
]);

export const objectIdentity = union(1, {
  1: [
    "actor",
    block([["actorId", text8], ["objectGeneration", nonzero], ["expectedAuthorityOwnerGeneration", nonzero]]),
  ],
  2: [
    "userSpot",
    block([["spotId", text8], ["objectGeneration", nonzero], ["expectedAuthorityOwnerGeneration", nonzero]]),
  ],
  3: ["instanceSpot", block([["instanceType", text8], ["spotId", text8], ["objectGeneration", nonzero]])],
});

export const route = union(1, { 1: ["actor", actorRouteFence], 2: ["spot", spotRouteFence] });

const sameObject = (reader, value, starts) => {
  const { sourceRoute, targetRoute } = value;
  const name = sourceRoute.tag === 1 ? "actorRef" : "spotRef";
  const id = sourceRoute.tag === 1 ? "actorId" : "spotId";
  if (
    sourceRoute.tag !== targetRoute.tag ||
    sourceRoute[name][id] !== targetRoute[name][id] ||
    sourceRoute[name].objectGeneration !== targetRoute[name].objectGeneration
  ) {
    reader.fail("invalid-field", starts.targetRoute, "the routes name two objects", `${reader.path}.targetRoute`);
  }
};

export const messageFollowEnvelope = versioned(
  block(
    [
      ["sourceRoute", route],
      ["targetRoute", route],
      ["hopCount", ranged(1, 1, 8)],
      ["queuedMessages", u32],
      ["queuedBytes", u32],
      ["originalOperationId", operationId],
      ["originalReplyRouteId", ordinal],
    ],
    sameObject,
  ),
  16777216,
);

export const membership = block([["actorRef", actorRef], ["spotRef", spotRef]]);

export const payloadEnvelope = versioned(
  block([["packetName", text8], ["contentType", text8], ["payload", bytes32(4294966774)]]),
);

export const metadataFrame = {
  read(reader) {
    const start = reader.at;
    reader.named("version", () => {
      if (reader.number(1) !== 1) reader.fail("invalid-field", start, "another version");
    });
    const entries = [];
    const count = reader.number(1);
    for (let index = 0; index < count; index += 1) {
      reader.named(`[${index}]`, () => {
        const at = reader.at;
        const key = reader.named("key", () => text8.read(reader));
        if (entries.some((entry) => entry.key === key)) reader.fail("duplicate-item", at, key);
        entries.push({ key, value: reader.named("value", () => metadataValue.read(reader)) });
      });
    }
    if (reader.at - start > 1024) reader.fail("invalid-field", start, "more than 1024 bytes of metadata");
    return entries;
  },
  write(writer, entries) {
    writer.number(1, 1);
    writer.number(entries.length, 1);
    for (const entry of entries) {
      text8.write(writer, entry.key);
      metadataValue.write(writer, entry.value);
    }
  },
};
