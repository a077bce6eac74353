// The objects of this peer: mailbox, turns, and what each is doing here.
import { followed, HOPS_MAX, LOOP_PACKET } from "./frames.mjs";
import { decodeRecord, recordDeadline } from "./records.mjs";
import { argumentsOf, resultBytes, TypedError } from "./payloads.mjs";

export const INSTANCE_SPOT = 3;
export const PLACE = { target: "target", active: "active", source: "source", follow: "follow" };

export const spotId = (key) => Buffer.from(key, "latin1").subarray(1).toString("utf8");
export const spotKey = (id) => `s${Buffer.from(id, "utf8").toString("latin1")}`;

// One object. Its mailbox holds {record (frozen, encoded), giveBack}; a turn is one handler call.
export class Held {
  constructor(node, key) {
    this.node = node;
    this.key = key;
    this.place = PLACE.target;
    this.stableType = "";
    this.objectGeneration = 0n;
    this.ownerGeneration = 0n;
    this.instance = null;
    this.mailbox = [];
    this.arrivedFrom = null;
    this.behind = null; // direct arrivals that wait for this peer's own marker
    this.staging = null; // the handoff that takes its records while it moves
    this.followRun = null;
    this.notices = new Set();
    this.scheduled = false;
  }

  get name() {
    return `spot '${spotId(this.key)}'`;
  }

  put(record, giveBack) {
    this.mailbox.push({ record, giveBack });
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      this.turns();
    });
  }

  // Turns run only while the object is active here, the lease is good and the test has not paused them.
  turns() {
    while (this.mailbox.length && this.place === PLACE.active && this.node.mayRun()) {
      const { record, giveBack } = this.mailbox.shift();
      giveBack?.();
      this.turn(decodeRecord(record));
    }
  }

  turn(record) {
    const deadline = recordDeadline(record);
    const asked = record.replyRoute.replyRouteId;
    if (deadline !== null && deadline < BigInt(Date.now())) return this.node.count("expired");
    const { payload } = record.body;
    if (payload.packetName === LOOP_PACKET) return undefined; // of a worker's own, for nobody here
    try {
      const value = this.instance.run(payload.packetName, argumentsOf(payload));
      this.node.count("turns");
      if (asked) this.node.reply(record, false, resultBytes(payload.packetName, value));
    } catch (error) {
      const typed = error instanceof TypedError ? error : new TypedError(
        "InternalFailure",
        String(error),
        { remote_traceback: error.stack },
      );
      if (asked) this.node.replyError(record, typed);
    }
    return undefined;
  }

  // Message Follow of one record frame to where the object went.
  follow(body) {
    const link = this.node.mesh.get(this.followRun);
    if (body[2] >= HOPS_MAX || link === null) {
      this.node.refuse(
        body,
        new TypedError("Unavailable", `${this.name} moved on and could not be followed`, { applied: "no" }),
      );
      return false;
    }
    link.sendRecord(followed(body));
    return true;
  }
}
