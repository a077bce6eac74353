// The peer as a process. First line of stdin: the configuration as JSON; later lines are orders: {"do": "close" or
// "open", "gate"}, {"do": "cut", "peer"}, {"do": "spoil", "on"}, {"do": "mark", "on"}, {"do": "report"},
// {"do": "stop"}; the end of stdin ends the process. Each line of stdout is one event as JSON.
import { createInterface } from "node:readline";

import { Node } from "./node.mjs";

const tell = (event, fields) => process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);
let node = null;

async function stop() {
  await node?.stop();
  tell("stopped", { counters: node?.counters ?? {} });
  process.exit(0);
}

async function obey(line) {
  const order = JSON.parse(line);
  if (node === null) {
    node = new Node(order, tell);
    await node.start();
    tell("serving", { endpoint: node.endpoint });
  } else if (order.do === "close") {
    node.closeGate(order.gate);
    tell("closed", { gate: order.gate });
  } else if (order.do === "open") {
    node.openGate(order.gate);
  } else if (order.do === "cut") {
    node.cut(order.peer);
  } else if (order.do === "spoil") {
    node.spoil = order.on; // checksums of payloads sent from now on are wrong
  } else if (order.do === "mark") {
    node.mark = order.on; // a marker of the peer's own goes right behind each Restore request
  } else if (order.do === "report") {
    tell("report", { waiting: node.waiting(), counters: node.counters });
  } else if (order.do === "stop") {
    await stop();
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) =>
  obey(line).catch((error) => {
    console.error(error);
    process.exit(1);
  }),
);
lines.on("close", () => process.exit(0));
