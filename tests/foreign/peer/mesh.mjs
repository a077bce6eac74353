// The links of this member: listener, dials, and which of two connections between two runs stays.
import net from "node:net";

import { greetAsAcceptor, greetAsDialler, lowerRun, Refused, runKey } from "./handshake.mjs";
import { Link } from "./link.mjs";

const SUPERSEDE_MS = 1000;
const UNAUTHENTICATED_MAX = 64;
const REDIAL_FIRST_MS = 50;
const REDIAL_MAX_MS = 2000;

export class Mesh {
  // `receiver`: what Link asks for, and onUp(link).
  constructor(run, cluster, secret, receiver, { chunkLimit, frameLimit }) {
    this.me = { run, role: 1, chunkLimit, frameLimit };
    this.cluster = Buffer.from(cluster, "utf8");
    this.secret = Buffer.from(secret, "utf8");
    this.receiver = receiver;
    this.links = new Map();
    this.dials = new Map(); // run -> the connection this side has said Hello on
    this.wanted = new Map(); // run -> {run, endpoint, pauseMs}: whoever dialled a link dials it again
    this.greeting = 0;
    this.stopping = false;
    this.server = net.createServer((socket) => this.accept(socket));
  }

  async listen(host) {
    await new Promise((resolve, reject) => this.server.once("error", reject).listen(0, host, resolve));
    return `${host}:${this.server.address().port}`;
  }

  get(run) {
    const link = this.links.get(runKey(run));
    return link && !link.closing ? link : null;
  }

  all() {
    return [...this.links.values()].filter((link) => !link.closing);
  }

  async accept(socket) {
    socket.on("error", () => {});
    if (this.stopping || this.greeting >= UNAUTHENTICATED_MAX) return void socket.destroy();
    this.greeting += 1;
    try {
      const { peer, leftover } = await greetAsAcceptor(
        socket,
        this.me,
        this.cluster,
        this.secret,
        (found) => this.admit(found),
      );
      this.up(new Link(socket, peer, this.me, this, leftover));
    } catch (error) {
      this.receiver.onRefused("accepting", error);
    } finally {
      this.greeting -= 1;
    }
  }

  // "Which connection stays", rules 1 and 2.
  async admit(peer) {
    if (this.stopping) throw new Refused("shutting-down");
    const key = runKey(peer.run);
    if (this.dials.has(key)) {
      if (lowerRun(this.me.run, peer.run)) throw new Refused("duplicate-dial");
      this.dials.get(key).destroy();
    }
    const older = this.links.get(key);
    if (older === undefined) return;
    const answer = await Promise.race([
      older.probe(),
      new Promise((resolve) => setTimeout(resolve, SUPERSEDE_MS, null).unref()),
    ]);
    if (answer === true) throw new Refused("already-connected");
    if (!older.down) older.socket.destroy();
    await older.closed;
  }

  // The link to a run, dialled if there is none; null when it does not come about.
  async ensure(run, endpoint) {
    const key = runKey(run);
    const there = this.get(run);
    if (there || this.dials.has(key) || this.links.has(key) || this.stopping) return there;
    const colon = endpoint.lastIndexOf(":");
    const socket = net.connect(
      { host: endpoint.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(endpoint.slice(colon + 1)) },
    );
    socket.on("error", () => {});
    this.dials.set(key, socket);
    try {
      const { peer, leftover } = await greetAsDialler(socket, this.me, run, this.cluster, this.secret);
      return this.up(new Link(socket, peer, this.me, this, leftover));
    } catch (error) {
      this.receiver.onRefused("dialling", error);
      return this.get(run);
    } finally {
      this.dials.delete(key);
    }
  }

  // Keeps a link to a run until `unwant`.
  async want(run, endpoint) {
    const key = runKey(run);
    if (this.wanted.has(key) || this.stopping) return;
    this.wanted.set(key, { run, endpoint, pauseMs: REDIAL_FIRST_MS });
    if ((await this.ensure(run, endpoint)) === null) this.redial(key);
  }

  unwant(run) {
    this.wanted.delete(runKey(run));
  }

  redial(key) {
    const wanted = this.wanted.get(key);
    if (!wanted || this.stopping) return;
    setTimeout(async () => {
      wanted.pauseMs = Math.min(2 * wanted.pauseMs, REDIAL_MAX_MS);
      if (this.links.has(key) || this.wanted.get(key) !== wanted) return;
      if ((await this.ensure(wanted.run, wanted.endpoint)) === null) this.redial(key);
    }, wanted.pauseMs).unref();
  }

  up(link) {
    this.links.set(runKey(link.peer.run), link);
    const wanted = this.wanted.get(runKey(link.peer.run));
    if (wanted) wanted.pauseMs = REDIAL_FIRST_MS;
    this.receiver.onUp(link);
    return link;
  }

  async stop() {
    this.stopping = true;
    this.server.close();
    await Promise.all([...this.links.values()].map((link) => link.close("stopping")));
  }

  // what links tell

  onRecord(link, body) {
    this.receiver.onRecord(link, body);
  }

  onReply(link, body) {
    this.receiver.onReply(link, body);
  }

  onContract(link, parts, deadlineMs) {
    this.receiver.onContract(link, parts, deadlineMs);
  }

  onControl(link, message) {
    this.receiver.onControl(link, message);
  }

  onViolation(link, error) {
    this.receiver.onViolation(link, error);
  }

  onDown(link, unsent) {
    const key = runKey(link.peer.run);
    if (this.links.get(key) === link) this.links.delete(key);
    this.receiver.onDown(link, unsent);
    this.redial(key);
  }
}
