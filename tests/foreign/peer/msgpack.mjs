// The MessagePack that control messages, arguments, results and errors are written in. No extension types.
// Integers beyond 2^53 are BigInts, binary is a Buffer, maps are objects with text keys.

export function pack(value) {
  const parts = [];
  put(parts, value);
  return Buffer.concat(parts);
}

const head = (parts, first, size, value) => {
  const octets = Buffer.alloc(1 + size);
  octets[0] = first;
  if (size) octets.writeUIntBE(value, 1, size);
  parts.push(octets);
};

function put(parts, value) {
  if (value === null || value === undefined) head(parts, 0xc0, 0);
  else if (value === false || value === true) head(parts, value ? 0xc3 : 0xc2, 0);
  else if (typeof value === "bigint" || Number.isInteger(value)) putInteger(parts, BigInt(value));
  else if (typeof value === "number") {
    const octets = Buffer.alloc(9);
    octets[0] = 0xcb;
    octets.writeDoubleBE(value, 1);
    parts.push(octets);
  } else if (typeof value === "string") {
    const raw = Buffer.from(value, "utf8");
    putSized(parts, raw.length, [0xa0, 32], [0xd9, 0xda, 0xdb]);
    parts.push(raw);
  } else if (Buffer.isBuffer(value)) {
    putSized(parts, value.length, null, [0xc4, 0xc5, 0xc6]);
    parts.push(value);
  } else if (Array.isArray(value)) {
    putSized(parts, value.length, [0x90, 16], [null, 0xdc, 0xdd]);
    for (const item of value) put(parts, item);
  } else {
    const entries = Object.entries(value);
    putSized(parts, entries.length, [0x80, 16], [null, 0xde, 0xdf]);
    for (const [name, item] of entries) {
      put(parts, name);
      put(parts, item);
    }
  }
}

function putInteger(parts, value) {
  if (value >= 0n && value < 128n) return head(parts, Number(value), 0);
  if (value < 0n && value >= -32n) return head(parts, Number(256n + value), 0);
  const octets = Buffer.alloc(9);
  if (value < 0n) {
    octets[0] = 0xd3;
    octets.writeBigInt64BE(value, 1);
  } else if (value <= 0xffffffffn) {
    return head(parts, 0xce, 4, Number(value));
  } else {
    octets[0] = 0xcf;
    octets.writeBigUInt64BE(value, 1);
  }
  return parts.push(octets);
}

function putSized(parts, length, fixed, [one, two, four]) {
  if (fixed !== null && length < fixed[1]) head(parts, fixed[0] + length, 0);
  else if (one !== null && length < 0x100) head(parts, one, 1, length);
  else if (length < 0x10000) head(parts, two, 2, length);
  else head(parts, four, 4, length);
}

export function unpack(octets) {
  const state = { octets, at: 0 };
  const value = take(state);
  if (state.at !== octets.length) throw new Error("bytes behind a MessagePack value");
  return value;
}

function uint(state, size) {
  state.at += size;
  if (size < 8) return state.octets.readUIntBE(state.at - size, size);
  return small(state.octets.readBigUInt64BE(state.at - 8));
}

function int(state, size) {
  state.at += size;
  if (size < 8) return state.octets.readIntBE(state.at - size, size);
  return small(state.octets.readBigInt64BE(state.at - 8));
}

const small = (value) => (value <= 9007199254740991n && value >= -9007199254740991n ? Number(value) : value);

function raw(state, length) {
  if (length > state.octets.length - state.at) throw new Error("a MessagePack value is cut short");
  state.at += length;
  return state.octets.subarray(state.at - length, state.at);
}

const string = (state, length) => raw(state, length).toString("utf8");
const list = (state, length) => Array.from({ length }, () => take(state));

function map(state, length) {
  const found = {};
  for (let index = 0; index < length; index += 1) {
    const name = take(state);
    found[name] = take(state);
  }
  return found;
}

function take(state) {
  const first = raw(state, 1)[0];
  if (first < 0x80) return first;
  if (first < 0x90) return map(state, first & 15);
  if (first < 0xa0) return list(state, first & 15);
  if (first < 0xc0) return string(state, first & 31);
  if (first >= 0xe0) return first - 256;
  switch (first) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: case 0xc5: case 0xc6: return Buffer.from(raw(state, uint(state, 1 << (first - 0xc4))));
    case 0xca: return raw(state, 4).readFloatBE(0);
    case 0xcb: return raw(state, 8).readDoubleBE(0);
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return uint(state, 1 << (first - 0xcc));
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return int(state, 1 << (first - 0xd0));
    case 0xd9: case 0xda: case 0xdb: return string(state, uint(state, 1 << (first - 0xd9)));
    case 0xdc: case 0xdd: return list(state, uint(state, 2 << (first - 0xdc)));
    case 0xde: case 0xdf: return map(state, uint(state, 2 << (first - 0xde)));
    default: throw new Error(`MessagePack type ${first.toString(16)}`);
  }
}
