// This peer as a member of the cluster: lease and descriptor, the other nodes, and where each frame goes.
import { randomBytes } from "node:crypto";

import { encodeCommand, decodeCommand } from "./commands.mjs";
import { STABLE_TYPE } from "./counter.mjs";
import { FLAG, MARKER_PACKET, parseRecord, recordFrame, replyFrame } from "./frames.mjs";
import { runKey, sameRun } from "./handshake.mjs";
import { authorityKey } from "./keys.mjs";
import { Mesh } from "./mesh.mjs";
import { pack, unpack } from "./msgpack.mjs";
import { TypedError } from "./payloads.mjs";
import { decodeRecord, encodeRecord } from "./records.mjs";
import { descriptorKey, descriptorRun, leaseBytes, leaseKey, rowBytes, rowFields } from "./rows.mjs";
import { notHere, SourceMove } from "./source.mjs";
import { INSTANCE_SPOT, PLACE, spotId } from "./spots.mjs";
import { identityKey, TargetMove } from "./target.mjs";
import { LocationStore } from "./store.mjs";

const LEASE = { ttlMs: 15000, renewMs: 5000, marginMs: 5000, retryMs: 250 };
const REFRESH_MS = 5000;
const FRAME_HEADROOM = 65536;
const MARKER_LIMIT_MS = 2000;

export class Node {
  // config: rid, cluster, secret, redis {host, port}, version, chunkLimit. `tell(event, fields)` reports to the test.
  constructor(config, tell) {
    this.config = config;
    this.tell = tell;
    const generation = ((BigInt(Date.now()) * 1000n) << 10n) | BigInt(randomBytes(2).readUInt16BE(0) & 1023);
    this.run = { rid: Buffer.from(config.rid, "utf8"), generation: generation & (2n ** 62n - 1n) };
    this.leaseGeneration = this.run.generation;
    this.owner = {
      rid: this.run.rid.toString("hex"),
      node_generation: this.run.generation.toString(),
      owner_id: `${config.rid}@${this.run.generation}`,
      lease_generation: this.leaseGeneration.toString(),
    };
    this.applicationVersion = BigInt(config.version);
    this.chunkLimit = config.chunkLimit;
    this.store = new LocationStore(config.redis.host, config.redis.port, config.cluster);
    this.mesh = new Mesh(
      this.run,
      config.cluster,
      config.secret,
      this,
      { chunkLimit: config.chunkLimit, frameLimit: Math.max(1048576, config.chunkLimit) + FRAME_HEADROOM },
    );
    this.descriptors = new Map();
    this.objects = new Map();
    this.targets = new Map();
    this.sources = new Map();
    this.moving = new Map();
    this.ownMarkers = new Map();
    this.markersSent = 0;
    this.counters = {};
    this.gates = new Map();
    this.admittedUntil = 0;
    this.state = "Serving";
    this.timers = new Set();
  }

  // life

  async start() {
    this.endpoint = await this.mesh.listen("127.0.0.1");
    await this.putLease([leaseKey(this.owner), null]);
    await this.refresh();
    this.every(LEASE.renewMs, () => this.putLease([leaseKey(this.owner), this.leaseVersion]));
    this.every(REFRESH_MS, () => this.refresh());
  }

  every(ms, work) {
    this.timers.add(setInterval(() => work().catch((error) => this.tell("failed", { error: String(error) })), ms));
  }

  // The lease and the descriptor go in one write with one TTL; what may run counts from before it was sent (B6.4).
  async putLease(condition) {
    const before = performance.now();
    const version = await this.store.write([condition], [
      [leaseKey(this.owner), leaseBytes(this.owner), LEASE.ttlMs],
      [descriptorKey(this.run), rowBytes(this.descriptor()), LEASE.ttlMs],
    ]);
    if (version === null) throw new Error("the lease is not ours any more");
    this.leaseVersion = version;
    this.admittedUntil = before + LEASE.ttlMs - LEASE.marginMs;
  }

  descriptor() {
    return {
      rid: this.owner.rid,
      generation: this.owner.node_generation,
      owner_id: this.owner.owner_id,
      lease_generation: this.owner.lease_generation,
      application: "foreign",
      application_version: this.applicationVersion.toString(),
      endpoints: [this.endpoint],
      types: [{ kind: "instanceSpot", stable_type: STABLE_TYPE, policy: "preserve" }],
      state: this.state,
      cordoned: false,
      weight: "0", // this peer creates nothing: objects come by an explicit move only
      wave: "",
      capacity: "0",
      object_count: [...this.objects.values()].filter((held) => held.place === PLACE.active).length.toString(),
      workers: "1",
      client: false,
    };
  }

  async refresh() {
    const seen = new Set();
    for (const { value } of await this.store.scan("node:")) {
      const descriptor = rowFields(value);
      const run = descriptorRun(descriptor);
      if (sameRun(run, this.run)) continue;
      seen.add(runKey(run));
      if (!this.descriptors.has(runKey(run))) this.descriptors.set(runKey(run), descriptor);
      if (!descriptor.client && descriptor.endpoints.length) await this.mesh.want(run, descriptor.endpoints[0]);
    }
    for (const [key, descriptor] of this.descriptors) {
      if (seen.has(key) || this.mesh.links.has(key)) continue;
      this.descriptors.delete(key);
      this.mesh.unwant(descriptorRun(descriptor));
    }
  }

  async stop() {
    this.state = "Stopped";
    for (const timer of this.timers) clearInterval(timer);
    await this.mesh.stop();
    await this.store.write(
      [[leaseKey(this.owner), this.leaseVersion]],
      [[leaseKey(this.owner), null], [descriptorKey(this.run), null]],
    );
    this.store.close();
  }

  count(name) {
    this.counters[name] = (this.counters[name] ?? 0) + 1;
  }

  pause(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  // Messages that wait here, in mailboxes and in holds.
  waiting() {
    return [...this.objects.values()].reduce(
      (sum, held) => sum + held.mailbox.length + (held.staging?.hold?.length ?? 0),
      0,
    );
  }

  mayRun() {
    return !this.gates.has("turns") && performance.now() < this.admittedUntil;
  }

  // what the test holds up or breaks

  cut(rid) {
    for (const link of this.mesh.all()) if (link.peer.run.rid.toString("utf8") === rid) link.socket.destroy();
  }

  closeGate(name) {
    let open = null;
    const opened = new Promise((resolve) => (open = resolve));
    this.gates.set(name, { open, opened });
  }

  openGate(name) {
    this.gates.get(name)?.open();
    this.gates.delete(name);
    for (const held of this.objects.values()) held.schedule();
  }

  gate(name) {
    return this.gates.get(name)?.opened;
  }

  // links

  onUp(link) {
    link.sendControl("Announce", rowBytes(this.descriptor()));
    for (const source of this.sources.values()) source.linkUp(link);
    this.tell("link_up", { peer: link.peer.run.rid.toString("utf8") });
  }

  onDown(link, unsent) {
    for (const source of this.sources.values()) source.linkDown(link);
    for (const body of unsent) this.unsent(body);
    this.tell("link_down", { peer: link.peer.run.rid.toString("utf8"), reason: link.reason });
  }

  // A record that never left: a move keeps it for the next connection; otherwise it is known not to have arrived.
  unsent(body) {
    const held = this.objects.get(parseRecord(body).key);
    if (held?.staging instanceof SourceMove) held.staging.arrived(body);
    else this.refuse(body, new TypedError("Unavailable", "the link to the next node broke", { applied: "no" }));
  }

  onRefused(what, error) {
    this.tell("handshake_refused", { what, reason: error.reason ?? String(error) });
  }

  onViolation(link, error) {
    this.tell("violation", { peer: link.peer.run.rid.toString("utf8"), error: error.stack });
  }

  // records

  onRecord(link, body) {
    const header = parseRecord(body);
    const giveBack = () => link.giveBack(body.length);
    const held = this.objects.get(header.key);
    if (held) this.onObject(held, body, giveBack, link);
    else this.elsewhere(body, header, giveBack);
  }

  onObject(held, body, giveBack, link = null) {
    const header = parseRecord(body);
    if (header.objectGeneration !== 0n && header.objectGeneration !== held.objectGeneration) {
      giveBack();
      return this.refuse(body, new TypedError("InvalidOperation", `${held.name} is another incarnation`));
    }
    const fromSource = header.flags & FLAG.follow && link !== null && sameRun(link.peer.run, held.arrivedFrom);
    if (held.behind !== null && !fromSource) {
      giveBack();
      return held.behind.push(body);
    }
    if (held.place === PLACE.active && !(header.flags & FLAG.marker)) {
      return held.put(body.subarray(header.recordAt), giveBack);
    }
    giveBack();
    if (held.place === PLACE.active) return this.answerMarker(decodeRecord(body.subarray(header.recordAt)), held);
    if (held.place === PLACE.follow) return held.onFollow(body);
    return held.staging.arrived(body, header);
  }

  // A record for an object that is not here: on to its recorded owner, or refused.
  async elsewhere(body, header, giveBack) {
    giveBack();
    const key = authorityKey(header.key[0], Buffer.from(header.key, "latin1").subarray(1));
    const name = `spot '${spotId(header.key)}'`;
    try {
      const found = await this.store.read(key);
      const row = found === null ? null : rowFields(found.value);
      const owner = row?.owner ?? null;
      if (row?.state === "lost") {
        return this.refuse(body, new TypedError("DataLost", `the state of ${name} was lost`, { object_id: name }));
      }
      if (owner === null) {
        return this.refuse(
          body,
          new TypedError("NotFound", `${name} does not exist here, and this node makes none`, { object_id: name }),
        );
      }
      const run = { rid: Buffer.from(owner.rid, "hex"), generation: BigInt(owner.node_generation) };
      const held = this.objects.get(header.key);
      if (held) return this.onObject(held, body, () => {});
      const link = sameRun(run, this.run) ? null : this.mesh.get(run);
      if (link === null) {
        return this.refuse(
          body,
          new TypedError("Unavailable", `${name} cannot be reached from here`, { object_id: name, applied: "no" }),
        );
      }
      const copy = Buffer.from(body);
      copy[1] |= FLAG.follow;
      copy[2] += 1;
      return link.sendRecord(copy);
    } catch (error) {
      return this.refuse(
        body,
        new TypedError("Unavailable", `${name}: ${error.message}`, { object_id: name, applied: "no" }),
      );
    }
  }

  frozen(body) {
    return body.subarray(parseRecord(body).recordAt);
  }

  decoded(record) {
    return decodeRecord(record);
  }

  encoded(record) {
    return encodeRecord(record);
  }

  // replies

  origin(record) {
    return { rid: record.source.nodeRid, generation: record.source.nodeGeneration };
  }

  reply(record, isError, result) {
    const run = this.origin(record);
    const link = this.mesh.get(run);
    if (link === null) return this.count("replies_without_link");
    return link.send(replyFrame(isError, record.replyRoute.replyRouteId, record.operationId, run, result));
  }

  replyError(record, error) {
    this.reply(record, true, pack(error.body));
  }

  refuse(body, error) {
    const header = parseRecord(body);
    if (header.flags & FLAG.marker) return this.refuseMarker(decodeRecord(body.subarray(header.recordAt)));
    if (!(header.flags & FLAG.request)) return this.count("dead_letters");
    const record = decodeRecord(body.subarray(header.recordAt));
    return this.replyError(record, error);
  }

  onReply() {
    this.count("late_replies"); // this peer asks nothing
  }

  // path markers (B9.4)

  isMarker(record) {
    return record.body.payload?.packetName === MARKER_PACKET;
  }

  // This peer's own marker down its former path to an object that comes back by another way: what arrives directly
  // waits behind it, at most 2 s, since what was followed along that path is older (B8.14, B9.4).
  markOwnPath(held, run) {
    const number = this.sendMarker(held, run);
    if (number === null) return;
    held.behind = [];
    this.ownMarkers.set(number, held);
    setTimeout(() => this.ownMarkerBack(number), MARKER_LIMIT_MS).unref();
    this.count("own_markers");
  }

  // The number of a marker that is on its way; null without a link.
  sendMarker(held, run) {
    const number = BigInt((this.markersSent += 1));
    const operationId = { high: randomBytes(8).readBigUInt64BE(0) | 1n, low: number };
    const payload = Buffer.alloc(8);
    payload.writeBigUInt64BE(number);
    const record = {
      recordKind: 5,
      source: {
        tag: 1,
        nodeRid: this.run.rid,
        nodeGeneration: this.run.generation,
        ownerId: this.owner.owner_id,
        ownerLeaseGeneration: this.leaseGeneration,
      },
      hasMetadata: false,
      operationId,
      operationKind: 0,
      replyRoute: {},
      body: {
        spotRouteFence: {
          spotRef: { spotId: spotId(held.key), objectGeneration: 1n },
          targetNodeRid: run.rid,
          targetNodeGeneration: run.generation,
          expectedAuthorityOwnerGeneration: 1n,
          expectedOwnerLeaseGeneration: 1n,
        },
        payload: { packetName: MARKER_PACKET, contentType: "application/octet-stream", payload },
      },
    };
    const body = recordFrame(FLAG.marker | FLAG.complete, INSTANCE_SPOT, operationId, held.key, encodeRecord(record));
    return this.mesh.get(run)?.sendRecord(body) ? number : null;
  }

  ownMarkerBack(number) {
    const held = this.ownMarkers.get(BigInt(number));
    if (!held) return;
    this.ownMarkers.delete(BigInt(number));
    const behind = held.behind.splice(0);
    held.behind = null;
    for (const body of behind) this.onObject(held, body, () => {});
  }

  refuseMarker(record) {
    this.mesh.get(this.origin(record))?.sendControl("MarkerRefused", record.body.payload.payload.readBigUInt64BE(0));
  }

  answerMarker(record, held) {
    const number = record.body.payload.payload.readBigUInt64BE(0);
    const link = this.mesh.get(this.origin(record));
    link?.sendControl(
      "MarkerTaken",
      number,
      Buffer.from(held.key, "latin1"),
      INSTANCE_SPOT,
      held.objectGeneration,
      held.ownerGeneration,
      this.leaseGeneration,
    );
    this.count("markers");
  }

  // Command 50: tells the sender of a followed record where the object is now (B9.2).
  notice(held, body, target, formerGeneration) {
    const header = parseRecord(body);
    if (header.flags & FLAG.marker) return;
    const record = decodeRecord(body.subarray(header.recordAt));
    const run = this.origin(record);
    const asked = header.replyRoute !== 0n;
    if (!asked && held.notices.has(runKey(run))) return;
    held.notices.add(runKey(run));
    const spotRef = { spotId: spotId(held.key), objectGeneration: held.objectGeneration };
    this.mesh.get(run)?.sendContract(
      encodeCommand({
        command: 50,
        envelope: {
          sourceRoute: {
            tag: 2,
            spotRef,
            targetNodeRid: this.run.rid,
            targetNodeGeneration: this.run.generation,
            expectedAuthorityOwnerGeneration: formerGeneration,
            expectedOwnerLeaseGeneration: this.leaseGeneration,
          },
          targetRoute: {
            tag: 2,
            spotRef,
            targetNodeRid: target.nodeRid,
            targetNodeGeneration: target.nodeGeneration,
            expectedAuthorityOwnerGeneration: formerGeneration + 1n,
            expectedOwnerLeaseGeneration: target.ownerLeaseGeneration,
          },
          hopCount: Math.min(header.hops + 1, 8),
          queuedMessages: 0,
          queuedBytes: 0,
          originalOperationId: header.operation,
          originalReplyRouteId: header.replyRoute,
        },
      }),
    );
  }

  // contract records

  onContract(link, parts, deadlineMs) {
    const command = decodeCommand(parts);
    if (command.command === 50) return;
    const key = identityKey(command.relocationIdentity);
    const target = this.targets.get(key);
    const source = this.sources.get(key);
    if (command.command === 40) {
      if (target) return void target.repeated(link, command);
      const move = new TargetMove(this, link, command, deadlineMs);
      this.targets.set(key, move);
      return void move.begin();
    }
    if (command.command === 52) target?.chunk(command);
    else if (command.command === 31) target?.relay(link, encodeRecord(command.frozenRecord));
    else if (command.command === 34) target?.cutover(link, command);
    else if (command.command === 30) source?.ready(link);
    else if (command.command === 53) source?.refused(link, command.failureCode);
    else throw new Error(`command ${command.command} is not expected here`);
  }

  forgetTarget(move) {
    this.targets.delete(identityKey(move.identity));
  }

  // control messages

  onControl(link, message) {
    const [name, ...fields] = message;
    if (name === "Announce") {
      const descriptor = rowFields(fields[0]);
      if (sameRun(descriptorRun(descriptor), link.peer.run)) this.descriptors.set(runKey(link.peer.run), descriptor);
    } else if (name === "Call") {
      this.serve(link, fields);
    } else if (name === "MarkerTaken" || name === "MarkerRefused") {
      this.tell("marker_answered", { name, owner_generation: fields[4] ?? null });
      this.ownMarkerBack(fields[0]);
    } else if (name === "Withdrawn") {
      for (const target of this.targets.values()) target.named(fields) && target.withdrawn();
    } else if (!["CallResult", "RouteNotice", "RequestsLost", "RequestsTaken", "HandoffTimes", "SealRefused", "FailureTold"].includes(name)) {
      throw new Error(`a control message ${name}`);
    }
  }

  async serve(link, [call, operation, given]) {
    try {
      const work = { relocate_here: this.relocate, locate_here: this.locate }[operation];
      if (!work) throw new TypedError("InternalFailure", `this node offers no operation '${operation}'`);
      link.sendControl("CallResult", call, pack(await work.call(this, unpack(given))), null);
    } catch (error) {
      const typed = error instanceof TypedError ? error : new TypedError("InternalFailure", String(error));
      link.sendControl("CallResult", call, Buffer.alloc(0), typed.body);
    }
  }

  mustHold(key) {
    const held = this.objects.get(key.toString("latin1"));
    if (!held || ![PLACE.active, PLACE.source].includes(held.place)) {
      throw notHere(`spot '${spotId(key.toString("latin1"))}'`);
    }
    return held;
  }

  async locate({ key }) {
    this.mustHold(key);
    return { node: this.config.rid, worker: 0 };
  }

  async relocate({ key, to, deadline_s: seconds }) {
    const held = this.mustHold(key);
    const running = this.moving.get(held.key);
    if (running) return running;
    const candidates = [...this.descriptors.values()].filter(
      (found) => found.rid === to.toString("hex") && this.eligible(found),
    );
    const name = to.toString("utf8");
    if (!candidates.length) {
      return {
        outcome: "failed",
        reason: "TargetUnavailable",
        detail: `${name} cannot take it`,
        target: name,
        interruption_ns: 0,
        here: this.config.rid,
      };
    }
    const move = new SourceMove(this, held, candidates.at(-1), Date.now() + seconds * 1000);
    const done = move.begin().then(() => move.outcome).then(
      (result) => ({ ...result, interruption_ns: 0, here: result.outcome === "in_doubt" ? "" : this.config.rid }),
    );
    this.moving.set(held.key, done);
    return done.finally(() => this.moving.delete(held.key));
  }

  eligible(descriptor) {
    return (
      descriptor.state === "Serving" &&
      !descriptor.cordoned &&
      descriptor.application_version === this.applicationVersion.toString() &&
      descriptor.types.some(
        (type) => type.kind === "instanceSpot" && type.stable_type === STABLE_TYPE && type.policy === "preserve",
      ) &&
      this.mesh.get(descriptorRun(descriptor)) !== null
    );
  }
}
