// One authenticated connection after its handshake: framing, credit, liveness, goodbye.
import { contractFrame, KIND, parseContract } from "./frames.mjs";
import { pack, unpack } from "./msgpack.mjs";

const CREDIT_RECORDS = 1024;
const CREDIT_OCTETS = 8 * 1024 * 1024;
const PING_MS = 2000;
const SILENCE_MS = 10000;
const GOODBYE_MS = 2000;

let connections = 0;

// `receiver` gets onRecord(link, body), onReply, onContract(link, parts, deadlineMs), onControl(link, message) in the
// order of the connection, and onDown(link, unsentRecords) once at its end.
export class Link {
  constructor(socket, peer, me, receiver, leftover) {
    this.socket = socket;
    this.peer = peer;
    this.receiver = receiver;
    this.connectionId = (connections += 1);
    this.frameLimit = me.frameLimit;
    this.held = [];
    this.heldOctets = 0;
    this.waiting = [];
    this.creditRecords = this.creditOctets = 0; // what the peer granted
    this.granted = { records: 0, octets: 0 }; // what the peer still has of our grants
    this.back = { records: CREDIT_RECORDS, octets: CREDIT_OCTETS };
    this.closing = this.deaf = this.saidGoodbye = this.down = false;
    this.heardAt = Date.now();
    this.reason = ""; // of the peer's goodbye
    this.probes = new Map();
    this.pings = 0;
    this.closed = new Promise((resolve) => (this.resolveClosed = resolve));
    socket.setNoDelay(true);
    socket.on("data", (octets) => this.take(octets));
    socket.on("error", () => {});
    socket.on("close", () => this.ended());
    this.timer = setInterval(() => this.tick(), PING_MS);
    this.grant();
    if (leftover.length) queueMicrotask(() => this.take(leftover));
    if (socket.destroyed) queueMicrotask(() => this.ended());
  }

  // sending

  send(body) {
    if (this.closing) return false;
    this.write(body);
    return true;
  }

  write(body) {
    const head = Buffer.alloc(4);
    head.writeUInt32BE(body.length);
    this.socket.cork();
    this.socket.write(head);
    this.socket.write(body);
    process.nextTick(() => this.socket.uncork());
  }

  sendControl(...message) {
    return this.send(Buffer.concat([Buffer.from([KIND.control]), pack(message)]));
  }

  sendContract(parts, deadlineMs = 0) {
    return this.send(contractFrame(parts, deadlineMs));
  }

  sendRecord(body) {
    if (this.closing) return false;
    this.waiting.push(body);
    this.sendWaiting();
    return true;
  }

  sendWaiting() {
    while (this.waiting.length && this.creditRecords > 0 && this.creditOctets > 0 && !this.closing) {
      const body = this.waiting.shift();
      this.creditRecords -= 1;
      this.creditOctets -= body.length;
      this.write(body);
    }
  }

  // A record left this member's care: it may be granted again.
  giveBack(octets) {
    this.back.records += 1;
    this.back.octets += octets;
    this.grant();
  }

  grant() {
    const low = this.granted.records <= CREDIT_RECORDS / 2 || this.granted.octets <= CREDIT_OCTETS / 2;
    if (!low || !this.back.records || this.closing) return;
    this.granted.records += this.back.records;
    this.granted.octets += this.back.octets;
    this.sendControl("Credit", this.back.records, this.back.octets);
    this.back = { records: 0, octets: 0 };
  }

  // receiving

  take(octets) {
    if (this.deaf) return;
    this.heardAt = Date.now();
    this.held.push(octets);
    this.heldOctets += octets.length;
    try {
      while (this.heldOctets >= 4 && !this.deaf) {
        if (this.held[0].length < 4) this.held = [Buffer.concat(this.held)];
        const length = this.held[0].readUInt32BE(0);
        if (length < 1 || length > this.frameLimit) throw new Error(`a frame of ${length} octets`);
        if (this.heldOctets < 4 + length) return;
        const all = this.held.length === 1 ? this.held[0] : Buffer.concat(this.held);
        this.held = [all.subarray(4 + length)];
        this.heldOctets -= 4 + length;
        this.deliver(all.subarray(4, 4 + length));
      }
    } catch (error) {
      this.violation(error);
    }
  }

  deliver(body) {
    switch (body[0]) {
      case KIND.record:
        if (this.granted.records <= 0 || this.granted.octets <= 0) throw new Error("a record without credit");
        this.granted.records -= 1;
        this.granted.octets -= body.length;
        return this.receiver.onRecord(this, Buffer.from(body));
      case KIND.reply:
        return this.receiver.onReply(this, body);
      case KIND.contract: {
        const { deadlineMs, parts } = parseContract(body);
        return this.receiver.onContract(this, parts, deadlineMs);
      }
      case KIND.control:
        return this.control(unpack(body.subarray(1)));
      default:
        throw new Error(`a frame of kind ${body[0]}`);
    }
  }

  control(message) {
    switch (message[0]) {
      case "Credit":
        this.creditRecords += message[1];
        this.creditOctets += message[2];
        return this.sendWaiting();
      case "Ping":
        return void this.sendControl("Pong", message[1]);
      case "Pong":
        this.probes.get(message[1])?.(true);
        return void this.probes.delete(message[1]);
      case "Goodbye":
        this.deaf = true;
        this.reason = message[1];
        if (!this.closing) this.sayGoodbye(`goodbye: ${message[1]}`);
        return this.closeWhenDone();
      default:
        return this.receiver.onControl(this, message);
    }
  }

  // life

  // A sign of life on this very connection: true, or false at its end.
  probe() {
    if (this.down) return Promise.resolve(false);
    const number = (this.pings += 1);
    this.sendControl("Ping", number);
    return new Promise((resolve) => this.probes.set(number, resolve));
  }

  tick() {
    const silent = Date.now() - this.heardAt;
    if (silent >= SILENCE_MS) this.socket.destroy();
    else if (silent >= PING_MS) this.sendControl("Ping", (this.pings += 1));
  }

  close(reason) {
    if (!this.closing) this.sayGoodbye(reason);
    return this.closed;
  }

  sayGoodbye(reason) {
    this.sendControl("Goodbye", reason.slice(0, 200));
    this.closing = true;
    setTimeout(() => this.socket.destroy(), GOODBYE_MS).unref();
    this.socket.write("", () => {
      this.saidGoodbye = true;
      this.closeWhenDone();
    });
  }

  closeWhenDone() {
    if (this.deaf && this.saidGoodbye) this.socket.end();
  }

  violation(error) {
    this.deaf = true;
    this.receiver.onViolation(this, error);
    if (!this.closing) this.sayGoodbye(`protocol: ${error.message}`);
    this.closeWhenDone();
  }

  ended() {
    if (this.down) return;
    this.closing = this.deaf = this.down = true;
    clearInterval(this.timer);
    for (const resolve of this.probes.values()) resolve(false);
    this.receiver.onDown(this, this.waiting);
    this.resolveClosed();
  }
}
