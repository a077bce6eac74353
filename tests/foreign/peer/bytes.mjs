// Reading and writing fields, and the schema out of which every block of docs/reference/wire.md is made.
// Knows the primitive types of W1 and how a refusal is named (W8); no block, record or command.

export class WireError extends Error {
  constructor(word, offset, path, detail) {
    super(`${word} at ${offset} (${path || "end"}): ${detail}`);
    Object.assign(this, { word, offset, path });
  }
}

export class Reader {
  constructor(octets, trace = null) {
    this.octets = octets;
    this.at = 0;
    this.end = octets.length;
    this.depth = 0; // inside how many bodies of a declared length
    this.names = [];
    this.trace = trace;
  }

  get path() {
    return this.names.join("").slice(1);
  }

  fail(word, offset, detail, path = this.path) {
    throw new WireError(word, offset, path, detail);
  }

  take(count) {
    if (count > this.end - this.at) {
      this.fail(this.depth ? "invalid-body-length" : "truncated-field", this.at, `${count} bytes wanted`);
    }
    this.at += count;
    return this.octets.subarray(this.at - count, this.at);
  }

  number(size) {
    return this.take(size).readUIntBE(0, size);
  }

  u64() {
    return this.take(8).readBigUInt64BE(0);
  }

  named(name, read) {
    this.names.push(name.startsWith("[") ? name : `.${name}`);
    if (this.trace) this.trace[this.path] = this.at;
    const value = read();
    this.names.pop();
    return value;
  }

  // A body whose length was just read at `lengthAt`: exactly that long, or invalid-body-length (W1.5, W1.6).
  body(length, lengthAt, read) {
    if (length > this.end - this.at) {
      this.fail(this.depth ? "invalid-body-length" : "truncated-field", lengthAt, "cut short");
    }
    const outer = this.end;
    this.end = this.at + length;
    this.depth += 1;
    const value = read();
    this.depth -= 1;
    if (this.at !== this.end) this.fail("invalid-body-length", lengthAt, `${this.end - this.at} bytes too many`);
    this.end = outer;
    return value;
  }

  finish() {
    if (this.at !== this.end) this.fail("trailing-byte", this.at, "bytes behind the last field", "");
  }
}

export class Writer {
  constructor() {
    this.parts = [];
  }

  bytes(octets) {
    this.parts.push(octets);
  }

  number(value, size) {
    const octets = Buffer.alloc(size);
    octets.writeUIntBE(Number(value), 0, size);
    this.parts.push(octets);
  }

  u64(value) {
    const octets = Buffer.alloc(8);
    octets.writeBigUInt64BE(BigInt(value));
    this.parts.push(octets);
  }

  joined() {
    return Buffer.concat(this.parts);
  }
}

// Numbers: u8, u16 and u32 are JavaScript numbers, u64 BigInts; bytes are Buffers. In the fixtures' JSON form
// BigInts are decimal strings and Buffers hex; the writers take either form.

const SIGNED_MAX = 2n ** 63n - 1n;

export const asBytes = (value) => (typeof value === "string" ? Buffer.from(value, "hex") : value);

export const unsigned = (size) => ({
  read: (reader) => reader.number(size),
  write: (writer, value) => writer.number(value, size),
});

export const u8 = unsigned(1);
export const u16 = unsigned(2);
export const u32 = unsigned(4);

export const ranged64 = (first, last) => ({
  read(reader) {
    const at = reader.at;
    const value = reader.u64();
    if (value < first || value > last) reader.fail("invalid-field", at, `${value} is out of range`);
    return value;
  },
  write: (writer, value) => writer.u64(value),
});

export const u64 = ranged64(0n, 2n ** 64n - 1n);
export const nonzero = ranged64(1n, SIGNED_MAX);
export const ordinal = ranged64(0n, SIGNED_MAX);

export const ranged = (size, first, last) => ({
  read(reader) {
    const at = reader.at;
    const value = reader.number(size);
    if (value < first || value > last) reader.fail("invalid-field", at, `${value} is out of range`);
    return value;
  },
  write: (writer, value) => writer.number(value, size),
});

export const enumeration = (size, allowed) => ({
  read(reader) {
    const at = reader.at;
    const value = reader.number(size);
    if (!allowed.includes(value)) reader.fail("invalid-field", at, `${value} is not one of ${allowed}`);
    return value;
  },
  write: (writer, value) => writer.number(value, size),
});

export const range = (first, last) => Array.from({ length: last - first + 1 }, (_, index) => first + index);

export const bool8 = {
  read(reader) {
    const at = reader.at;
    const value = reader.number(1);
    if (value > 1) reader.fail("invalid-field", at, `${value} is neither 0 nor 1`);
    return value === 1;
  },
  write: (writer, value) => writer.number(value ? 1 : 0, 1),
};

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const text = (lengthSize, least, most) => ({
  read(reader) {
    const at = reader.at;
    const length = reader.number(lengthSize);
    if (length < least || length > most) reader.fail("invalid-field", at, `${length} bytes of text`);
    const raw = reader.take(length);
    let found = null;
    try {
      found = decoder.decode(raw);
    } catch {
      // refused below
    }
    if (found === null || found.includes("\0")) {
      reader.fail("invalid-field", at + lengthSize, "not strict UTF-8 without NUL");
    }
    return found;
  },
  write(writer, value) {
    const raw = Buffer.from(value, "utf8");
    if (raw.length < least || raw.length > most) throw new RangeError(`${raw.length} bytes of text`);
    writer.number(raw.length, lengthSize);
    writer.bytes(raw);
  },
});

export const text8 = text(1, 1, 255);
export const text16 = text(2, 1, 4096);
export const metadataValue = text(2, 0, 1024);

export const rid = {
  read(reader) {
    const at = reader.at;
    const length = reader.number(1);
    if (length < 1) reader.fail("invalid-field", at, "an empty rid");
    return Buffer.from(reader.take(length));
  },
  write(writer, value) {
    const raw = asBytes(value);
    writer.number(raw.length, 1);
    writer.bytes(raw);
  },
};

export const bytes32 = (most) => ({
  read(reader) {
    const at = reader.at;
    const length = reader.number(4);
    if (length > most) reader.fail("invalid-field", at, `${length} bytes`);
    return reader.take(length);
  },
  write(writer, value) {
    const raw = asBytes(value);
    writer.number(raw.length, 4);
    writer.bytes(raw);
  },
});

// A block: [name, type] pairs in order. `check(reader, value, starts)` may refuse what its fields say together.
export const block = (fields, check = null) => ({
  fields,
  read(reader) {
    const value = {};
    const starts = {};
    const at = reader.at;
    for (const [name, type] of fields) {
      starts[name] = reader.at;
      value[name] = reader.named(name, () => type.read(reader));
    }
    if (check) check(reader, value, starts, at);
    return value;
  },
  write(writer, value) {
    for (const [name, type] of fields) type.write(writer, value[name]);
  },
});

// A union (W1.5): cases are {tag: [kind, block]}.
export const union = (tagSize, cases) => ({
  read(reader) {
    const at = reader.at;
    const tag = reader.named("tag", () => reader.number(tagSize));
    const found = cases[tag];
    if (!found) reader.fail("invalid-field", at, `no case ${tag}`, `${reader.path}.tag`);
    const lengthAt = reader.at;
    const length = reader.number(2);
    return { tag, kind: found[0], ...reader.body(length, lengthAt, () => found[1].read(reader)) };
  },
  write(writer, value) {
    const inner = new Writer();
    cases[value.tag][1].write(inner, value);
    const body = inner.joined();
    writer.number(value.tag, tagSize);
    writer.number(body.length, 2);
    writer.bytes(body);
  },
});

// A versioned envelope (W1.6).
export const versioned = (type, most = 0xffffffff) => ({
  read(reader) {
    const at = reader.at;
    reader.named("version", () => {
      if (reader.number(1) !== 1) reader.fail("invalid-field", at, "another version");
    });
    const lengthAt = reader.at;
    const length = reader.named("length", () => {
      const found = reader.number(4);
      if (found > most) reader.fail("invalid-field", lengthAt, `${found} bytes`);
      return found;
    });
    return reader.body(length, lengthAt, () => type.read(reader));
  },
  write(writer, value) {
    const inner = new Writer();
    type.write(inner, value);
    const body = inner.joined();
    writer.number(1, 1);
    writer.number(body.length, 4);
    writer.bytes(body);
  },
});

// bool8, u16 length, value when 1 (W1.7); null when 0.
export const optional16 = (type) => ({
  read(reader) {
    const there = bool8.read(reader);
    const lengthAt = reader.at;
    const length = reader.number(2);
    if (!there && length) reader.fail("invalid-body-length", lengthAt, "a length without a value");
    return there ? reader.body(length, lengthAt, () => type.read(reader)) : null;
  },
  write(writer, value) {
    const inner = new Writer();
    if (value !== null) type.write(inner, value);
    const body = inner.joined();
    writer.number(value === null ? 0 : 1, 1);
    writer.number(body.length, 2);
    writer.bytes(body);
  },
});

// u32 count and items of at least `least` bytes each; `order(a, b)` < 0, 0 or > 0 where they have to rise.
export const vector = (type, least, order = null) => ({
  read(reader) {
    const at = reader.at;
    const count = reader.number(4);
    if (count * least > reader.end - reader.at) reader.fail("truncated-field", at, `no room for ${count} items`);
    const items = [];
    for (let index = 0; index < count; index += 1) {
      reader.named(`[${index}]`, () => {
        const start = reader.at;
        const item = type.read(reader);
        const rise = order && index ? order(items[index - 1], item) : -1;
        if (rise === 0) reader.fail("duplicate-item", start, "twice");
        if (rise > 0) reader.fail("unsorted-vector", start, "not rising");
        Object.defineProperty(item, "startsAt", { value: start, enumerable: false });
        items.push(item);
      });
    }
    return items;
  },
  write(writer, items) {
    writer.number(items.length, 4);
    for (const item of items) type.write(writer, item);
  },
});

// The fixtures' JSON form of a decoded value.
export function plain(value) {
  if (typeof value === "bigint") return value.toString();
  if (Buffer.isBuffer(value)) return value.toString("hex");
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]));
  }
  return value;
}
