// One move away from this peer: seal, capture, Restore request and chunks, relay, cutover, follow (R4.2, R4.4, B8.10).
import { randomBytes } from "node:crypto";

import { encodeCommand } from "./commands.mjs";
import { crc32c } from "./crc32c.mjs";
import { encodeEnvelope } from "./envelopes.mjs";
import { runKey, sameRun } from "./handshake.mjs";
import { authorityKey } from "./keys.mjs";
import { stateBlob, TypedError } from "./payloads.mjs";
import { committedBy, descriptorRun, fencedBy, fencedRow, rowBytes, rowFields } from "./rows.mjs";
import { PLACE, spotId } from "./spots.mjs";
import { identityKey } from "./target.mjs";

const COMMIT_RESERVE_MS = 10000;
const SEAL_TIME_MIN_MS = 2000;
const STORE_PAUSE_MS = 5;
const FOLLOW_MS = 30000;

export class SourceMove {
  constructor(node, held, target, deadline) {
    this.node = node;
    this.held = held;
    this.target = target; // the descriptor of the node it goes to
    this.run = descriptorRun(target);
    this.deadline = deadline;
    this.state = "starting"; // preparing, fencing, crossed, followed, restored
    this.hold = [];
    this.outcome = new Promise((resolve) => (this.report = resolve));
    this.requests = 0; // how often the Restore request went out
    this.answered = () => {};
    this.linked = () => {};
    this.batch = [];
    this.submitted = false;
  }

  // Everything that may fail while the object still works, then the seal.
  async begin() {
    const { node, held } = this;
    this.rowKey = authorityKey("s", Buffer.from(spotId(held.key), "utf8"));
    const found = await node.store.read(this.rowKey);
    this.row = found === null ? null : rowFields(found.value);
    this.link = node.mesh.get(this.run);
    if (this.row === null || this.row.owner.owner_id !== node.owner.owner_id || held.place !== PLACE.active) {
      return this.failed("RelocationFailed", "the object changed meanwhile");
    }
    if (this.link === null) return this.failed("TargetUnavailable", "there is no link to the target");
    if (this.deadline - Date.now() < SEAL_TIME_MIN_MS) return this.failed("DeadlineExceeded", "too late to seal");
    this.identity = {
      relocationId: { high: randomBytes(8).readBigUInt64BE(0) | 1n, low: randomBytes(8).readBigUInt64BE(0) },
      targetAttemptGeneration: 1n,
      coordinatorFence: {
        ownerId: node.owner.owner_id,
        leaseGeneration: node.leaseGeneration,
        nodeRid: node.run.rid,
        nodeGeneration: node.run.generation,
        expectedAuthorityStoreVersion: found.version,
      },
    };
    this.object = {
      tag: 3,
      instanceType: this.row.stable_type,
      spotId: spotId(held.key),
      objectGeneration: held.objectGeneration,
    };
    this.fence = {
      nodeRid: this.run.rid,
      nodeGeneration: this.run.generation,
      ownerId: this.target.owner_id,
      ownerLeaseGeneration: BigInt(this.target.lease_generation),
    };
    node.sources.set(identityKey(this.identity), this);
    this.seal();
    await this.send();
    return this.outcome;
  }

  // A turn is one synchronous call here, so the boundary is now (R4.2.1).
  seal() {
    const { held } = this;
    held.place = PLACE.source;
    held.staging = this;
    this.saved = held.mailbox.splice(0);
    for (const entry of this.saved) entry.giveBack?.();
    this.sealedAt = process.hrtime.bigint();
    const payload = encodeEnvelope({
      relocation: this.identity.relocationId,
      object: this.object,
      applicationVersion: this.node.applicationVersion,
      applicationStates: [{ participantId: 1n, hasState: true, payload: stateBlob(held.instance.capture()) }],
      savedWork: this.saved.map(
        (entry, index) => (
          { participantId: 1n, order: BigInt(index + 1), frozenRecord: this.node.decoded(entry.record) }
        ),
      ),
      timerRegistrations: [],
      pendingTimerTicks: [],
    });
    const size = Math.min(this.node.chunkLimit, this.link.peer.chunkLimit);
    this.chunks = [];
    for (let at = 0; at < payload.length; at += size) this.chunks.push(payload.subarray(at, at + size));
    const checksum = this.node.spoil ? crc32c(payload) ^ 1 : crc32c(payload);
    this.manifest = {
      payloadTotalLength: BigInt(payload.length),
      payloadChunkCount: this.chunks.length,
      payloadChecksumCrc32c: checksum >>> 0,
    };
    this.node.tell("captured", { chunks: this.chunks.length, octets: payload.length, saved: this.saved.length });
  }

  // The Restore request and all chunks, again on every new connection until the deadline (B8.6); then the fence.
  async send() {
    this.state = "preparing";
    this.remainingMs = Math.max(1, this.deadline - Date.now()) + COMMIT_RESERVE_MS;
    this.restoreEndsAt = Date.now() + this.remainingMs;
    for (;;) {
      const answer = await this.request();
      if (answer.ready) return this.cross();
      if (answer.failureCode) {
        const reason = `the target answered failure ${answer.failureCode}`;
        return this.requests > 1 ? this.fenceAndRestore(reason) : this.restore(reason);
      }
      if (answer.late || !(await this.nextLink())) {
        return this.fenceAndRestore("the deadline passed before relay-ready");
      }
    }
  }

  // Resolves to true once a connection to the target stands, to false at the deadline.
  nextLink() {
    if (this.link !== null) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, this.deadline - Date.now()), false);
      this.linked = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  async request() {
    this.requests += 1;
    const { link } = this;
    const answer = new Promise((resolve) => (this.answered = resolve));
    const common = { relocationIdentity: this.identity, object: this.object, senderRole: 1 };
    const prepare = {
      ...common,
      command: 40,
      initiatorRole: 1,
      target: this.fence,
      sourceNodeRid: this.node.run.rid,
      sourceNodeGeneration: this.node.run.generation,
      applicationVersion: this.node.applicationVersion,
      ...this.manifest,
    };
    link.sendContract(encodeCommand(prepare), Math.max(1, this.restoreEndsAt - Date.now()));
    if (this.node.mark) this.node.sendMarker(this.held, this.run);
    await this.node.gate("chunks");
    this.chunks.forEach(
      (chunkData, chunkOrdinal) => link.sendContract(
        encodeCommand({ ...common, command: 52, chunkOrdinal, chunkData }),
      ),
    );
    this.timer = setTimeout(() => this.answered({ late: true }), Math.max(0, this.deadline - Date.now()));
    const found = await answer;
    clearTimeout(this.timer);
    return found;
  }

  // command 30, 53, and the loss of the connection: whichever comes first decides.
  ready(link) {
    if (link === this.link) this.answered({ ready: true });
  }

  refused(link, failureCode) {
    if (link === this.link) this.answered({ failureCode });
  }

  linkDown(link) {
    if (link !== this.link) return;
    this.link = null;
    this.answered({ lost: true });
  }

  // A new connection to the target while its commit is not known: the whole batch and the cutover again (R4.4.5),
  // then what could not be followed meanwhile.
  linkUp(link) {
    if (this.link !== null || !sameRun(link.peer.run, this.run)) return;
    this.link = link;
    this.linked();
    if (this.state !== "crossed") return;
    this.node.tell("resent", { relayed: this.batch.length });
    this.sendBatch();
    this.sendCutover();
    for (const body of this.hold.splice(0)) this.sendFollow(body);
  }

  // A record frame for the object while it moves.
  arrived(body) {
    if (this.state === "followed" || (this.state === "crossed" && this.link !== null && this.submitted)) {
      this.sendFollow(body);
    }
    else this.hold.push(body);
  }

  // The irreversible boundary (R4.4.2): relay of the hold, one cutover behind it, afterwards follow frames only.
  async cross() {
    this.state = "crossed";
    this.batch = this.hold.splice(0).map((body) => this.node.frozen(body));
    this.chunks = [];
    this.held.instance = null;
    this.held.followRun = this.run;
    this.sendBatch();
    this.node.tell("relayed", { records: this.batch.length });
    await this.node.gate("cutover");
    if (this.link !== null && !this.submitted) this.sendCutover();
    for (const body of this.link === null ? [] : this.hold.splice(0)) this.sendFollow(body);
    return this.learn();
  }

  sendBatch() {
    const common = { relocationIdentity: this.identity, object: this.object, senderRole: 1 };
    for (const record of this.batch) {
      this.link.sendContract(encodeCommand({ ...common, command: 31, frozenRecord: this.node.decoded(record) }));
    }
  }

  sendCutover() {
    this.submitted = true;
    const checksum = this.batch.reduce((before, record) => crc32c(record, before), 0);
    const common = { relocationIdentity: this.identity, object: this.object, senderRole: 1 };
    this.link.sendContract(
      encodeCommand(
        { ...common, command: 34, boundaryRecordCount: BigInt(this.batch.length), boundaryChecksumCrc32c: checksum },
      ),
    );
    this.node.tell("cutover", { relayed: this.batch.length });
  }

  sendFollow(body) {
    const sent = this.held.follow(body);
    if (sent && this.state === "followed") {
      this.node.notice(this.held, body, this.fence, BigInt(this.row.owner_generation));
    }
  }

  // The commit is learned by reading the row, never by a message of the target (B8.10).
  async learn() {
    while (Date.now() < this.restoreEndsAt) {
      try {
        const found = await this.node.store.read(this.rowKey);
        const row = found === null ? null : rowFields(found.value);
        const expected = this.row.owner_generation;
        const passedOn = row !== null && BigInt(row.owner_generation) > BigInt(expected) + 1n;
        if (passedOn || (row !== null && committedBy(row, expected, this.identity.relocationId))) {
          return this.moved();
        }
      } catch {
        // read again
      }
      await this.node.pause(STORE_PAUSE_MS);
    }
    return this.report(
      { outcome: "in_doubt", reason: "", detail: "the row does not show the target", target: this.target.rid },
    );
  }

  moved() {
    this.state = "followed";
    for (const body of this.hold.splice(0)) this.sendFollow(body);
    this.held.place = PLACE.follow;
    this.held.staging = null;
    this.held.onFollow = (body) => this.sendFollow(body);
    setTimeout(() => {
      if (this.node.objects.get(this.held.key) === this.held) this.node.objects.delete(this.held.key);
      this.node.sources.delete(identityKey(this.identity));
    }, this.remainingMs + FOLLOW_MS).unref();
    this.node.tell("moved", { to: runKey(this.run) });
    this.report({ outcome: "moved", reason: "", detail: "", target: this.run.rid.toString("utf8") });
  }

  // back (R4.2.8): captured queue, then the hold, then new arrivals

  restore(reason) {
    const { held } = this;
    this.state = "restored";
    held.place = PLACE.active;
    held.staging = null;
    for (const entry of this.saved) held.put(entry.record, null);
    for (const body of this.hold) this.node.onObject(held, body, () => {});
    this.hold = [];
    this.node.sources.delete(identityKey(this.identity));
    return this.failed("RelocationFailed", reason);
  }

  // One fence write decides whether the target can still commit (B6.7).
  async fenceAndRestore(reason) {
    this.state = "fencing";
    const { relocationId, coordinatorFence } = this.identity;
    const fenced = rowBytes(fencedRow(this.row, relocationId));
    for (;;) {
      try {
        const condition = [this.rowKey, coordinatorFence.expectedAuthorityStoreVersion];
        if ((await this.node.store.write([condition], [[this.rowKey, fenced]])) !== null) {
          return this.giveUp(reason);
        }
        const found = await this.node.store.read(this.rowKey);
        const row = found === null ? null : rowFields(found.value);
        if (row !== null && fencedBy(row, relocationId)) return this.giveUp(reason);
        if (row === null || BigInt(row.owner_generation) !== BigInt(this.row.owner_generation)) return this.adopt();
      } catch {
        // the same write again
      }
      await this.node.pause(STORE_PAUSE_MS);
    }
  }

  // The attempt can only conflict now: spares the target its wait.
  giveUp(reason) {
    const { high, low } = this.identity.relocationId;
    this.node.mesh.get(this.run)?.sendControl("Withdrawn", high, low, this.identity.targetAttemptGeneration);
    return this.restore(reason);
  }

  adopt() {
    this.held.followRun = this.run;
    this.moved();
  }

  failed(reason, detail) {
    this.report({ outcome: "failed", reason, detail, target: this.run.rid.toString("utf8") });
    return this.outcome;
  }
}

export const notHere = (name) => new TypedError(
  "InvalidOperation",
  `${name} is not on this node`,
  { object_id: name, phase: "not here" },
);
