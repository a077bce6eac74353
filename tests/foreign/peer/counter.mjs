// The one type this peer hosts: an Instance Spot that adds up. Its state is what capture() gives in Python:
// UTF-8 JSON of {"total", "log", "ballast"}.
import { TypedError } from "./payloads.mjs";

export const STABLE_TYPE = "Counter";

export class Counter {
  constructor(own) {
    const state = own === null ? { total: 0, log: [], ballast: "" } : JSON.parse(own.toString("utf8"));
    Object.assign(this, state);
  }

  capture() {
    return Buffer.from(JSON.stringify({ total: this.total, log: this.log, ballast: this.ballast }), "utf8");
  }

  // One turn.
  run(handler, [first, second]) {
    switch (handler) {
      case "add":
      case "note":
        this.total += first;
        this.log.push([second, "javascript"]);
        return this.total;
      case "history":
        return this.log;
      default:
        throw new TypedError("NotFound", `${STABLE_TYPE} has no handler '${handler}'`);
    }
  }
}
