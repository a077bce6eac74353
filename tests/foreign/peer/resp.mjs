// A Redis client: RESP2 over one connection, calls in order, answers in order.
import net from "node:net";

export class RedisClient {
  constructor(host, port) {
    this.address = { host, port };
    this.socket = null;
    this.waiting = [];
    this.held = Buffer.alloc(0);
  }

  async connect() {
    const socket = net.connect(this.address);
    socket.setNoDelay(true);
    await new Promise((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    socket.removeAllListeners("error");
    socket.on("error", () => {});
    socket.on("data", (octets) => this.take(octets));
    socket.on("close", () => {
      if (this.socket === socket) this.socket = null;
      for (const call of this.waiting.splice(0)) call.reject(new Error("the connection to Redis broke"));
      this.held = Buffer.alloc(0);
    });
    this.socket = socket;
  }

  // Sends one command; arguments are text, numbers or Buffers. Bulk answers are Buffers.
  async call(...words) {
    if (this.socket === null) await (this.connecting ??= this.connect().finally(() => (this.connecting = null)));
    const parts = [Buffer.from(`*${words.length}\r\n`)];
    for (const word of words) {
      const raw = Buffer.isBuffer(word) ? word : Buffer.from(String(word), "utf8");
      parts.push(Buffer.from(`$${raw.length}\r\n`), raw, Buffer.from("\r\n"));
    }
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.socket.write(Buffer.concat(parts));
    });
  }

  close() {
    this.socket?.destroy();
  }

  take(octets) {
    this.held = this.held.length ? Buffer.concat([this.held, octets]) : octets;
    let at = 0;
    for (;;) {
      const found = parse(this.held, at);
      if (found === null) break;
      at = found.end;
      const call = this.waiting.shift();
      if (found.value instanceof Error) call.reject(found.value);
      else call.resolve(found.value);
    }
    this.held = this.held.subarray(at);
  }
}

// The answer that starts at `at`, with its end; null when it is not complete yet.
function parse(octets, at) {
  const lineEnd = octets.indexOf("\r\n", at);
  if (lineEnd < 0) return null;
  const line = octets.subarray(at + 1, lineEnd).toString("utf8");
  const end = lineEnd + 2;
  switch (String.fromCharCode(octets[at])) {
    case "+": return { value: line, end };
    case "-": return { value: new Error(line), end };
    case ":": return { value: Number(line), end };
    case "$": {
      const length = Number(line);
      if (length < 0) return { value: null, end };
      if (octets.length < end + length + 2) return null;
      return { value: Buffer.from(octets.subarray(end, end + length)), end: end + length + 2 };
    }
    case "*": {
      const count = Number(line);
      if (count < 0) return { value: null, end };
      const items = [];
      let next = end;
      for (let index = 0; index < count; index += 1) {
        const item = parse(octets, next);
        if (item === null) return null;
        items.push(item.value);
        next = item.end;
      }
      return { value: items, end: next };
    }
    default: throw new Error("not RESP");
  }
}
