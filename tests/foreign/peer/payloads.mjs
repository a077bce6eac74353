// What is inside the opaque bytes (docs/reference/peers.md): arguments, results, errors, application state.
import { payloadEnvelope } from "./blocks.mjs";
import { Writer } from "./bytes.mjs";
import { pack, unpack } from "./msgpack.mjs";

export const MSGPACK = "application/x-sojourn+msgpack";
const OWN_BYTES = 2;

export function argumentsOf(payload) {
  if (payload.contentType !== MSGPACK) {
    throw new TypedError("ProtocolError", `content type ${payload.contentType} is not read here`);
  }
  return unpack(payload.payload);
}

export function resultBytes(handler, value) {
  const writer = new Writer();
  payloadEnvelope.write(writer, { packetName: handler, contentType: MSGPACK, payload: pack(value) });
  return writer.joined();
}

// An error that a requester sees as the named kind (B3.3).
export class TypedError extends Error {
  constructor(kind, message, extra = {}) {
    super(message);
    this.kind = kind;
    this.fields = {
      message,
      object_id: null,
      operation_id: null,
      phase: null,
      applied: null,
      remote_traceback: null,
      ...extra,
    };
  }

  get body() {
    return { kind: this.kind, fields: this.fields };
  }
}

const sized = (raw) => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(raw.length);
  return Buffer.concat([length, raw]);
};

// The application state of an object with its own capture(): framework's part, then the state part.
export function stateBlob(own) {
  const head = { own: true, attributes: [["", OWN_BYTES, own.length, []]] };
  return Buffer.concat([sized(pack({ state: true, timers: {} })), sized(pack(head)), own]);
}

export function ownBytes(blob) {
  const partLength = blob.readUInt32BE(0);
  const part = unpack(blob.subarray(4, 4 + partLength));
  if (Object.keys(part.timers).length) throw new Error("timers are not taken here");
  if (!part.state) return null;
  const rest = blob.subarray(4 + partLength);
  const headLength = rest.readUInt32BE(0);
  const head = unpack(rest.subarray(4, 4 + headLength));
  const own = rest.subarray(4 + headLength);
  if (!head.own || head.attributes.length !== 1 || head.attributes[0][2] !== own.length) {
    throw new Error("not the bytes of capture()");
  }
  return own;
}
