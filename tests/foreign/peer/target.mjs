// One move to this peer: assembly, restore, relay-ready, relay and cutover, the CAS, opening (R4.3 to R4.6).
import { Counter, STABLE_TYPE } from "./counter.mjs";
import { encodeCommand } from "./commands.mjs";
import { crc32c } from "./crc32c.mjs";
import { decodeEnvelope } from "./envelopes.mjs";
import { FLAG } from "./frames.mjs";
import { sameRun } from "./handshake.mjs";
import { authorityKey } from "./keys.mjs";
import { ownBytes, TypedError } from "./payloads.mjs";
import { decodeRecord } from "./records.mjs";
import { committedBy, fencedBy, movedRow, rowBytes, rowFields } from "./rows.mjs";
import { Held, PLACE, spotKey } from "./spots.mjs";

export const FAILURE = { request: 17, spotStale: 33, dataLost: 35 };
const CUTOVER_WAIT_MS = 1000;
const STORE_PAUSE_MS = 50;
const ENDED_KEEP_MS = 60000;

export const identityKey = ({ relocationId, targetAttemptGeneration, coordinatorFence: fence }) =>
  [
    relocationId.high,
    relocationId.low,
    targetAttemptGeneration,
    fence.ownerId,
    fence.leaseGeneration,
    fence.nodeRid.toString("hex"),
    fence.nodeGeneration,
    fence.expectedAuthorityStoreVersion,
  ].join("/");

const sameId = (one, other) => one.high === BigInt(other.high) && one.low === BigInt(other.low);

const sameManifest = (one, other) =>
  ["payloadTotalLength", "payloadChunkCount", "payloadChecksumCrc32c", "applicationVersion"].every(
    (name) => one[name] === other[name],
  );

export class TargetMove {
  constructor(node, link, prepare, deadlineMs) {
    this.node = node;
    this.link = link;
    this.prepare = prepare;
    this.endsAt = Date.now() + deadlineMs;
    this.state = "assembling"; // restoring, ready, writing, open, ended
    this.failure = null;
    this.chunks = [];
    this.octets = 0n;
    this.checksum = 0;
    this.row = null;
    this.batches = new Map(); // relay records of each connection, in order
    this.queue = []; // the temporary queue: record frames that came directly or were followed
    this.settled = null; // {connection, count} once the boundary is settled
    this.resent = new Map();
    this.earlyMarkers = [];
    this.held = null;
    this.timer = null;
  }

  get identity() {
    return this.prepare.relocationIdentity;
  }

  get fence() {
    return this.identity.coordinatorFence;
  }

  named([high, low, attempt]) {
    const { relocationId, targetAttemptGeneration } = this.identity;
    return sameId(relocationId, { high, low }) && targetAttemptGeneration === BigInt(attempt);
  }

  // Checks of B8.1, then the temporary queue before everything else (R4.3.1).
  begin() {
    const refusal = this.refusal();
    if (refusal) return this.fail(refusal[0], refusal[1]);
    const key = spotKey(this.prepare.object.spotId);
    this.previous = this.node.objects.get(key) ?? null;
    if (this.previous && this.previous.place !== PLACE.follow) {
      return this.fail(FAILURE.spotStale, "the object is here");
    }
    this.held = new Held(this.node, key);
    this.held.objectGeneration = this.prepare.object.objectGeneration;
    this.held.staging = this;
    this.node.objects.set(key, this.held);
    const source = { rid: this.fence.nodeRid, generation: this.fence.nodeGeneration };
    const last = this.previous?.followRun ?? null;
    this.held.arrivedFrom = source;
    if (last !== null && (!sameRun(last, source) || this.link.waiting.length)) this.node.markOwnPath(this.held, last);
    this.armDeadline();
    return void this.readRow();
  }

  refusal() {
    const { target, object, applicationVersion, payloadChunkCount } = this.prepare;
    const source = { rid: this.fence.nodeRid, generation: this.fence.nodeGeneration };
    if (!sameRun(source, this.link.peer.run)) return [FAILURE.request, "the fence names another run than the link"];
    if (!sameRun({ rid: target.nodeRid, generation: target.nodeGeneration }, this.node.run)) {
      return [FAILURE.request, "for another run"];
    }
    if (object.kind !== "instanceSpot" || object.instanceType !== STABLE_TYPE) {
      return [FAILURE.request, "a type that is not hosted here"];
    }
    if (applicationVersion !== this.node.applicationVersion) return [FAILURE.request, "another application version"];
    if (payloadChunkCount === 0) return [FAILURE.dataLost, "a payload has at least one chunk"];
    if (this.endsAt <= Date.now()) return [FAILURE.request, "no deadline"];
    return null;
  }

  // The same identity again (R4.3.3, B8.6).
  repeated(link, prepare) {
    this.link = link;
    if (!sameManifest(prepare, this.prepare)) {
      return this.state === "open" || this.state === "writing" ? undefined : this.fail(
        FAILURE.dataLost,
        "another manifest",
      );
    }
    if (this.state === "ended") return this.failure === null ? undefined : this.sendFailed();
    if (this.state !== "assembling" && this.state !== "restoring") this.sendReady();
    if (this.state === "ready") this.armCutover();
    return undefined;
  }

  // assembly

  chunk({ chunkOrdinal: ordinal, chunkData: data }) {
    if (this.state !== "assembling") return;
    const { payloadChunkCount: count, payloadTotalLength: total, payloadChecksumCrc32c: checksum } = this.prepare;
    if (ordinal < this.chunks.length) {
      if (!this.chunks[ordinal].equals(data)) this.fail(FAILURE.dataLost, "a repeated chunk differs");
      return;
    }
    const end = this.octets + BigInt(data.length);
    const last = ordinal === count - 1;
    if (ordinal > this.chunks.length || ordinal >= count || end > total || (last && end !== total)) {
      this.fail(FAILURE.dataLost, "the chunks are not what was announced");
      return;
    }
    this.chunks.push(Buffer.from(data)); // its frame's memory is not ours (R4.3.2)
    this.octets = end;
    this.checksum = crc32c(data, this.checksum);
    if (!last) return;
    if (this.checksum !== checksum) return void this.fail(FAILURE.dataLost, "the checksum of the payload differs");
    this.verified = true;
    this.node.tell("assembled", { chunks: count, octets: Number(total) });
    this.restoreWhenBoth();
  }

  async readRow() {
    const expected = this.fence.expectedAuthorityStoreVersion;
    this.rowKey = authorityKey("s", Buffer.from(this.prepare.object.spotId, "utf8"));
    while (this.row === null && this.state === "assembling") {
      try {
        const found = await this.node.store.read(this.rowKey);
        const row = found === null ? null : rowFields(found.value);
        if (row === null || row.state === "lost" || found.version !== expected) {
          return this.fail(FAILURE.spotStale, "the row has another version");
        }
        this.row = row;
      } catch {
        await this.node.pause(STORE_PAUSE_MS);
      }
    }
    this.held.ownerGeneration = BigInt(this.row?.owner_generation ?? 0);
    for (const record of this.earlyMarkers.splice(0)) this.node.answerMarker(decodeRecord(record), this.held);
    return this.restoreWhenBoth();
  }

  async restoreWhenBoth() {
    if (this.row === null || !this.verified || this.state !== "assembling") return;
    this.state = "restoring";
    await this.node.gate("ready");
    if (this.state !== "restoring") return;
    try {
      const envelope = decodeEnvelope(Buffer.concat(this.chunks));
      const { relocation, object } = envelope;
      if (!sameId(relocation, this.identity.relocationId) || object.spotId !== this.prepare.object.spotId) {
        throw new Error("the envelope is of another move");
      }
      this.held.instance = new Counter(
        envelope.applicationStates[0].hasState ? ownBytes(envelope.applicationStates[0].payload) : null,
      );
      this.saved = envelope.savedWork.map((work) => work.frozenRecord);
    } catch (error) {
      this.fail(FAILURE.request, `not restored: ${error.message}`);
      return;
    }
    this.chunks = [];
    this.state = "ready";
    this.sendReady();
    this.armCutover();
  }

  // relay and cutover

  relay(link, octets) {
    const record = Buffer.from(octets);
    if (this.node.isMarker(decodeRecord(record))) this.node.answerMarker(decodeRecord(record), this.held);
    if (this.settled === null) {
      if (!this.batches.has(link.connectionId)) this.batches.set(link.connectionId, []);
      this.batches.get(link.connectionId).push(record);
    } else if (this.state !== "ended") {
      // A resent batch: the records that were taken already are dropped by position (B8.4).
      const seen = this.resent.get(link.connectionId) ?? 0;
      this.resent.set(link.connectionId, seen + 1);
      if (link.connectionId === this.settled.connection || seen >= this.settled.count) this.later(record);
    }
  }

  later(record) {
    if (this.state === "open") this.held.put(record, null);
    else this.queue.push({ record });
  }

  cutover(link, { boundaryRecordCount, boundaryChecksumCrc32c }) {
    if (this.state !== "ready") return void this.node.tell("late_cutover", {});
    const batch = this.batches.get(link.connectionId) ?? [];
    const checksum = batch.reduce((before, record) => crc32c(record, before), 0);
    if (BigInt(batch.length) !== boundaryRecordCount || checksum !== boundaryChecksumCrc32c) {
      this.node.tell("cutover_mismatch", {});
      return;
    }
    this.settle(link.connectionId, batch);
  }

  settle(connection, batch) {
    clearTimeout(this.timer);
    this.settled = { connection, count: batch.length };
    this.batch = batch;
    this.state = "writing";
    this.write();
  }

  armCutover() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.node.tell("cutover_timeout", {});
      const longest = [...this.batches].sort((one, other) => other[1].length - one[1].length)[0] ?? [null, []];
      this.settle(longest[0], longest[1]);
    }, Math.min(CUTOVER_WAIT_MS, Math.max(0, this.endsAt - Date.now())));
  }

  armDeadline() {
    this.deadline = setTimeout(() => {
      if (["assembling", "restoring", "ready"].includes(this.state)) {
        this.fail(FAILURE.request, "the Restore deadline passed");
      }
    }, this.endsAt - Date.now());
  }

  // A record frame for the object while it is staged: temporary queue; markers are answered as they are taken in.
  arrived(body, header) {
    const record = body.subarray(header.recordAt);
    if (!(header.flags & FLAG.marker)) this.queue.push({ record, body });
    else if (this.row === null) this.earlyMarkers.push(record); // the answer names the row's owner generation
    else this.node.answerMarker(decodeRecord(record), this.held);
  }

  // The only store write of a target: under the version of the fence, never one read here (R4.5.1, B6.5).
  async write() {
    const { relocationId } = this.identity;
    const row = movedRow(this.row, this.node.owner, relocationId);
    while (Date.now() < this.endsAt) {
      let version = null;
      try {
        version = await this.node.store.write(
          [[this.rowKey, this.fence.expectedAuthorityStoreVersion]],
          [[this.rowKey, rowBytes(row)]],
        );
        if (version !== null) return this.open();
        const found = await this.node.store.read(this.rowKey);
        const now = found === null ? null : rowFields(found.value);
        if (now !== null && committedBy(now, this.row.owner_generation, relocationId)) return this.open();
        if (now !== null && fencedBy(now, relocationId)) return this.withdrawn();
        if (found === null || found.version !== this.fence.expectedAuthorityStoreVersion) {
          return this.end("stale: another valid owner or generation");
        }
      } catch {
        // Not known how it ended: the same again, and a conflict then re-reads (R4.5.2).
      }
      await this.node.pause(STORE_PAUSE_MS);
    }
    return this.end("location_update_failed");
  }

  // Oldest work first (R4.6.1).
  open() {
    clearTimeout(this.deadline);
    const { held } = this;
    held.ownerGeneration += 1n;
    held.stableType = this.row.stable_type;
    held.place = PLACE.active;
    held.staging = null;
    this.state = "open";
    const taken = [
      ...this.saved.map((record) => this.node.encoded(record)),
      ...this.batch,
      ...this.queue.map((entry) => entry.record),
    ];
    for (const record of taken) if (!this.node.isMarker(decodeRecord(record))) held.put(record, null);
    this.node.tell("opened", { saved: this.saved.length, relayed: this.batch.length, queued: this.queue.length });
    const now = process.hrtime.bigint();
    const link = this.node.mesh.get({ rid: this.fence.nodeRid, generation: this.fence.nodeGeneration });
    link?.sendControl("HandoffTimes", this.identity.relocationId.high, this.identity.relocationId.low, now, now);
    this.saved = this.batch = this.queue = null;
  }

  // ends

  sendReady() {
    this.link.sendContract(
      encodeCommand(
        {
          command: 30,
          relocationIdentity: this.identity,
          target: this.prepare.target,
          object: this.prepare.object,
          senderRole: 2,
        },
      ),
    );
  }

  sendFailed() {
    this.link.sendContract(
      encodeCommand(
        {
          command: 53,
          relocationIdentity: this.identity,
          target: this.prepare.target,
          object: this.prepare.object,
          senderRole: 2,
          failureCode: this.failure,
        },
      ),
    );
  }

  // An explicit failure: never after a CAS was issued (R4.3.3). What came directly goes back to the source (B8.15).
  fail(code, reason) {
    this.failure = code;
    const queue = this.drop(reason);
    this.sendFailed();
    this.giveToSource(queue);
  }

  // The source has fenced this attempt: no answer, and what came directly goes to it (B6.7, B8.15).
  withdrawn() {
    if (this.state !== "open" && this.state !== "ended") this.giveToSource(this.drop("withdrawn"));
  }

  giveToSource(queue) {
    const run = { rid: this.fence.nodeRid, generation: this.fence.nodeGeneration };
    for (const { body } of queue) {
      this.held.followRun = run;
      if (body) this.held.follow(body);
    }
  }

  end(reason) {
    for (const { body } of this.drop(reason)) {
      if (body) {
        this.node.refuse(
          body,
          new TypedError("Unavailable", `the relocation of ${this.held.name} to this node ended`, { applied: "no" }),
        );
      }
    }
  }

  drop(reason) {
    clearTimeout(this.timer);
    clearTimeout(this.deadline);
    this.state = "ended";
    this.chunks = [];
    this.node.tell("target_ended", { reason });
    if (this.held && this.node.objects.get(this.held.key) === this.held) {
      if (this.previous) this.node.objects.set(this.held.key, this.previous);
      else this.node.objects.delete(this.held.key);
    }
    for (const record of this.earlyMarkers.splice(0)) this.node.refuseMarker(decodeRecord(record));
    setTimeout(() => this.node.forgetTarget(this), Math.max(0, this.endsAt - Date.now()) + ENDED_KEEP_MS).unref();
    const queue = this.queue ?? [];
    this.queue = [];
    return queue;
  }
}
