// The handshake of a link (docs/reference/mesh.md, "Handshake"): octets and order of its messages.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

const PREAMBLE = Buffer.from("SOJOURN\x01", "latin1");
const HELLO = 1, CHALLENGE = 2, PROOF = 3, WELCOME = 4, REFUSED = 5;
const MESSAGE_MAX = 1280;
const CHUNK_DEFAULT = 32768;

export class Refused extends Error {
  constructor(reason, byPeer = false) {
    super(`${reason}${byPeer ? " (by the peer)" : ""}`);
    this.reason = reason;
    this.byPeer = byPeer;
  }
}

export const sameRun = (one, other) => one.generation === other.generation && one.rid.equals(other.rid);
export const runKey = (run) => `${run.rid.toString("hex")}@${run.generation}`;
export const lowerRun = (one, other) => {
  const order = Buffer.compare(one.rid, other.rid);
  return order ? order < 0 : one.generation < other.generation;
};

const text8 = (raw) => Buffer.concat([Buffer.from([raw.length]), raw]);
const u64 = (value) => {
  const octets = Buffer.alloc(8);
  octets.writeBigUInt64BE(value);
  return octets;
};
const runOctets = (run) => Buffer.concat([text8(run.rid), u64(run.generation)]);

function memberOctets(member) {
  const limits = Buffer.alloc(9);
  limits[0] = member.role;
  limits.writeUInt32BE(member.chunkLimit, 1);
  limits.writeUInt32BE(member.frameLimit, 5);
  return Buffer.concat([runOctets(member.run), limits]);
}

function message(type, body) {
  const head = Buffer.alloc(3);
  head.writeUInt16BE(body.length + 1);
  head[2] = type;
  return Buffer.concat([head, body]);
}

class Fields {
  constructor(body) {
    this.body = body;
    this.at = 0;
  }

  take(count) {
    if (this.at + count > this.body.length) throw new Refused("malformed-handshake");
    this.at += count;
    return this.body.subarray(this.at - count, this.at);
  }

  text8() {
    const raw = this.take(this.take(1)[0]);
    if (!raw.length) throw new Refused("malformed-handshake");
    return Buffer.from(raw);
  }

  run() {
    return { rid: this.text8(), generation: this.take(8).readBigUInt64BE(0) };
  }

  member() {
    const run = this.run();
    const member = {
      run,
      role: this.take(1)[0],
      chunkLimit: this.take(4).readUInt32BE(0),
      frameLimit: this.take(4).readUInt32BE(0),
    };
    const bad = member.role < 1 || member.role > 2 || member.chunkLimit > 67108864 || member.frameLimit < 65536;
    if (bad || run.generation < 1n || run.generation > 2n ** 63n - 2n) throw new Refused("malformed-handshake");
    member.chunkLimit ||= CHUNK_DEFAULT;
    return member;
  }

  end() {
    if (this.at !== this.body.length) throw new Refused("malformed-handshake");
  }
}

// What arrives on a socket before it is a link, to be read message by message.
class Intake {
  constructor(socket) {
    this.socket = socket;
    this.held = Buffer.alloc(0);
    this.wake = null;
    this.over = false;
    this.onData = (octets) => {
      this.held = Buffer.concat([this.held, octets]);
      this.wake?.();
    };
    this.onEnd = () => {
      this.over = true;
      this.wake?.();
    };
    socket.on("data", this.onData);
    socket.on("close", this.onEnd);
    socket.on("end", this.onEnd);
    socket.on("error", this.onEnd);
  }

  async exactly(count) {
    while (this.held.length < count) {
      if (this.over) throw new Refused("connection-lost");
      await new Promise((resolve) => (this.wake = resolve));
      this.wake = null;
    }
    const found = this.held.subarray(0, count);
    this.held = this.held.subarray(count);
    return found;
  }

  async preamble() {
    const found = await this.exactly(PREAMBLE.length);
    if (!found.subarray(0, 7).equals(PREAMBLE.subarray(0, 7))) throw new Refused("not-sojourn");
    if (found[7] !== PREAMBLE[7]) throw new Refused("unsupported-version");
  }

  async message(due) {
    const size = (await this.exactly(2)).readUInt16BE(0);
    if (size < 1) throw new Refused("malformed-handshake");
    if (size > MESSAGE_MAX) throw new Refused("handshake-oversized");
    const rest = await this.exactly(size);
    const raw = Buffer.alloc(2 + size);
    raw.writeUInt16BE(size);
    rest.copy(raw, 2);
    const fields = new Fields(raw.subarray(3));
    if (raw[2] === REFUSED) throw new Refused(fields.text8().toString("latin1"), true);
    if (raw[2] !== due) throw new Refused("malformed-handshake");
    return { raw, fields };
  }

  release() {
    this.socket.off("data", this.onData);
    this.socket.off("close", this.onEnd);
    this.socket.off("end", this.onEnd);
    return this.held;
  }
}

const proof = (secret, label, cluster, hello, challenge) =>
  createHmac("sha256", secret)
    .update(Buffer.from(`sojourn mesh 1 ${label}\0`, "latin1"))
    .update(PREAMBLE)
    .update(text8(cluster))
    .update(hello)
    .update(challenge)
    .digest();

function checkProof(found, wanted) {
  const mac = found.fields.take(32);
  found.fields.end();
  if (!timingSafeEqual(mac, wanted)) throw new Refused("wrong-secret");
}

// Ends a connection that became no link: says why where the table of refusals allows it.
function refuse(socket, error, spoken) {
  const untold = ["not-sojourn", "connection-lost"];
  const silent = !(error instanceof Refused) || error.byPeer || untold.includes(error.reason);
  if (!silent && !socket.destroyed) {
    if (!spoken) socket.write(PREAMBLE);
    socket.write(message(REFUSED, text8(Buffer.from(error.reason, "latin1"))));
  }
  socket.end();
  setTimeout(() => socket.destroy(), 1000).unref();
}

async function bounded(socket, timeoutMs, steps) {
  let timer = null;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Refused("handshake-slow")), timeoutMs);
  });
  try {
    return await Promise.race([steps, late]);
  } finally {
    clearTimeout(timer);
  }
}

// Dials: resolves to {peer, leftover} once Welcome was read. `me` is {run, role, chunkLimit, frameLimit}.
export async function greetAsDialler(socket, me, wantedRun, cluster, secret, timeoutMs = 5000) {
  const intake = new Intake(socket);
  const hello = message(
    HELLO,
    Buffer.concat([randomBytes(32), text8(cluster), memberOctets(me), runOctets(wantedRun)]),
  );
  socket.write(Buffer.concat([PREAMBLE, hello]));
  const steps = async () => {
    await intake.preamble();
    const challenge = await intake.message(CHALLENGE);
    challenge.fields.take(32);
    const peer = challenge.fields.member();
    challenge.fields.end();
    if (sameRun(peer.run, me.run)) throw new Refused("self-connection");
    if (!peer.run.rid.equals(wantedRun.rid)) throw new Refused("other-node");
    if (!sameRun(peer.run, wantedRun)) throw new Refused("other-generation");
    socket.write(message(PROOF, proof(secret, "dialler", cluster, hello, challenge.raw)));
    checkProof(await intake.message(WELCOME), proof(secret, "acceptor", cluster, hello, challenge.raw));
    return { peer, leftover: intake.release() };
  };
  try {
    return await bounded(socket, timeoutMs, steps());
  } catch (error) {
    refuse(socket, error, true);
    throw error;
  }
}

// Accepts: `admit(peer)` decides whether this connection may become the link, and may take its time; then Welcome.
export async function greetAsAcceptor(socket, me, cluster, secret, admit, timeoutMs = 5000) {
  const intake = new Intake(socket);
  let spoken = false;
  const steps = async () => {
    await intake.preamble();
    const hello = await intake.message(HELLO);
    hello.fields.take(32);
    const name = hello.fields.text8();
    const peer = hello.fields.member();
    const dialled = hello.fields.run();
    hello.fields.end();
    if (!name.equals(cluster)) throw new Refused("other-cluster");
    if (sameRun(peer.run, me.run)) throw new Refused("self-connection");
    if (!dialled.rid.equals(me.run.rid)) throw new Refused("other-node");
    if (!sameRun(dialled, me.run)) throw new Refused("other-generation");
    const challenge = message(CHALLENGE, Buffer.concat([randomBytes(32), memberOctets(me)]));
    spoken = true;
    socket.write(Buffer.concat([PREAMBLE, challenge]));
    checkProof(await intake.message(PROOF), proof(secret, "dialler", cluster, hello.raw, challenge));
    await admit(peer);
    socket.write(message(WELCOME, proof(secret, "acceptor", cluster, hello.raw, challenge)));
    return { peer, leftover: intake.release() };
  };
  try {
    return await bounded(socket, timeoutMs, steps());
  } catch (error) {
    refuse(socket, error, spoken);
    throw error;
  }
}
