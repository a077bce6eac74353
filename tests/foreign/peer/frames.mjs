// Frames of a link (docs/reference/mesh.md, "Frames"): contract records, application records, replies.

export const KIND = { contract: 1, record: 2, reply: 3, control: 4 };
export const FLAG = { request: 1, intent: 2, complete: 4, marker: 8, activate: 16, follow: 32 };
export const HOPS_MAX = 8;
export const MARKER_PACKET = "sojourn.marker";
export const LOOP_PACKET = "sojourn.loop";

export function contractFrame(parts, deadlineMs = 0) {
  const head = Buffer.alloc(6);
  head[0] = KIND.contract;
  head.writeUInt32BE(deadlineMs, 1);
  head[5] = parts.length;
  const pieces = [head];
  parts.forEach((part, index) => {
    if (index < parts.length - 1) {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(part.length);
      pieces.push(length);
    }
    pieces.push(part);
  });
  return Buffer.concat(pieces);
}

export function parseContract(body) {
  const deadlineMs = body.readUInt32BE(1);
  const count = body[5];
  if (count < 1) throw new Error("a contract frame without a part");
  const parts = [];
  let at = 6;
  for (let index = 0; index < count - 1; index += 1) {
    const length = body.readUInt32BE(at);
    at += 4 + length;
    if (at > body.length) throw new Error("a contract frame is cut short");
    parts.push(body.subarray(at - length, at));
  }
  parts.push(body.subarray(at));
  return { deadlineMs, parts };
}

export function parseRecord(body) {
  const keyAt = 39;
  const typeAt = keyAt + body[38];
  const recordAt = typeAt + 1 + body[typeAt];
  if (recordAt > body.length || body[38] < 2 || body[2] > HOPS_MAX) throw new Error("a routing header is malformed");
  return {
    flags: body[1],
    hops: body[2],
    objectKind: body[3],
    objectGeneration: body.readBigUInt64BE(4),
    replyRoute: body.readBigUInt64BE(12),
    operation: { high: body.readBigUInt64BE(20), low: body.readBigUInt64BE(28) },
    key: body.subarray(keyAt, typeAt).toString("latin1"),
    stableType: body.subarray(typeAt + 1, recordAt).toString("utf8"),
    recordAt,
  };
}

// A send of this peer's own: no reply route, no intent, object generation not stated.
export function recordFrame(flags, objectKind, operation, key, record) {
  const head = Buffer.alloc(39);
  head[0] = KIND.record;
  head[1] = flags;
  head[3] = objectKind;
  head.writeBigUInt64BE(operation.high, 20);
  head.writeBigUInt64BE(operation.low, 28);
  const fenceAt = 4 + record.readUInt16BE(2) + 1 + 16 + 4 + 2; // kind and source, no metadata, ids, no reply route
  head.writeUInt16BE(fenceAt, 36);
  head[38] = key.length;
  return Buffer.concat([head, Buffer.from(key, "latin1"), Buffer.from([0]), record]);
}

// A record that is sent on by a former owner: one hop more, marked as followed.
export function followed(body) {
  const copy = Buffer.from(body);
  copy[1] = (copy[1] | FLAG.follow) & ~FLAG.activate;
  copy[2] += 1;
  return copy;
}

export function replyFrame(isError, replyRoute, operation, run, result) {
  const head = Buffer.alloc(27);
  head[0] = KIND.reply;
  head[1] = isError ? 1 : 0;
  head.writeBigUInt64BE(replyRoute, 2);
  head.writeBigUInt64BE(operation.high, 10);
  head.writeBigUInt64BE(operation.low, 18);
  head[26] = run.rid.length;
  const generation = Buffer.alloc(8);
  generation.writeBigUInt64BE(run.generation);
  return Buffer.concat([head, run.rid, generation, result]);
}
