// relocation-envelope-v1 (W3).
import { objectIdentity, relocationId } from "./blocks.mjs";
import { asBytes, block, bool8, enumeration, nonzero, ordinal, Reader, text8, u64, vector, Writer } from "./bytes.mjs";
import { frozenRecord } from "./records.mjs";

const applicationState = {
  read(reader) {
    const participantId = reader.named("participantId", () => nonzero.read(reader));
    const hasState = reader.named("hasState", () => bool8.read(reader));
    const payload = reader.named("payload", () => {
      const at = reader.at;
      const length = reader.u64();
      if (!hasState && length !== 0n) reader.fail("invalid-body-length", at, "a length without a state");
      if (!hasState) return null;
      if (length > BigInt(reader.end - reader.at)) reader.fail("truncated-field", at, "cut short");
      return reader.body(Number(length), at, () => {
        const innerAt = reader.at;
        const inner = reader.u64();
        if (inner !== length - 8n) reader.fail("invalid-body-length", innerAt, "the two lengths disagree");
        return reader.take(Number(inner));
      });
    });
    return { participantId, hasState, payload };
  },
  write(writer, value) {
    nonzero.write(writer, value.participantId);
    bool8.write(writer, value.hasState);
    const raw = value.hasState ? asBytes(value.payload) : null;
    writer.u64(raw === null ? 0 : raw.length + 8);
    if (raw !== null) {
      writer.u64(raw.length);
      writer.bytes(raw);
    }
  },
};

const savedWork = block([["participantId", nonzero], ["order", nonzero], ["frozenRecord", frozenRecord]]);

const timerRegistration = block([
  ["participantId", nonzero],
  ["name", text8],
  ["handlerType", text8],
  ["periodMilliseconds", nonzero],
  ["overrunPolicy", enumeration(1, [1, 2, 3])],
  ["maxCatchUpTicks", nonzero],
  ["stopOnUnhandledException", bool8],
  ["lastCompletedDeliveryIndex", ordinal],
  ["lastCompletedScheduledIndex", ordinal],
  ["nextScheduledAtUnixMilliseconds", u64],
]);

const pendingTimerTick = block([
  ["participantId", nonzero],
  ["order", nonzero],
  ["timerName", text8],
  ["deliveryIndex", nonzero],
  ["scheduledIndex", nonzero],
  ["scheduledAtUnixMilliseconds", u64],
  ["skippedTicks", ordinal],
]);

const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
const byParticipant = (one, other) => compare(one.participantId, other.participantId);
const byOrder = (one, other) => byParticipant(one, other) || compare(one.order, other.order);
const byName = (one, other) => byParticipant(one, other) || Buffer.compare(
  Buffer.from(one.name),
  Buffer.from(other.name),
);

const envelope = block(
  [
    ["relocation", relocationId],
    ["object", objectIdentity],
    ["applicationVersion", ordinal],
    ["applicationStates", vector(applicationState, 17, byParticipant)],
    ["savedWork", vector(savedWork, 17, byOrder)],
    ["timerRegistrations", vector(timerRegistration, 54, byName)],
    ["pendingTimerTicks", vector(pendingTimerTick, 50, byOrder)],
  ],
  together,
);

// W3.4
function together(reader, value, starts) {
  const { applicationStates, savedWork: work, timerRegistrations, pendingTimerTicks: ticks } = value;
  applicationStates.forEach((state, index) => {
    if (state.participantId !== BigInt(index + 1)) {
      reader.fail("invalid-field", starts.applicationStates, "not the participants 1 to n", "applicationStates");
    }
  });
  if (!applicationStates.length) {
    reader.fail("invalid-field", starts.applicationStates, "no participant", "applicationStates");
  }
  const last = BigInt(applicationStates.length);
  for (const name of ["savedWork", "timerRegistrations", "pendingTimerTicks"]) {
    const items = value[name];
    items.forEach((item, index) => {
      if (item.participantId > last) {
        reader.fail("invalid-field", item.startsAt, "no such participant", `${name}[${index}].participantId`);
      }
    });
  }
  const taken = new Set(work.map((item) => `${item.participantId}/${item.order}`));
  const names = new Set(timerRegistrations.map((item) => `${item.participantId}/${item.name}`));
  ticks.forEach((tick, index) => {
    const path = `pendingTimerTicks[${index}]`;
    if (taken.has(`${tick.participantId}/${tick.order}`)) {
      reader.fail("duplicate-item", tick.startsAt + 8, "an order twice", `${path}.order`);
    }
    if (!names.has(`${tick.participantId}/${tick.timerName}`)) {
      reader.fail("invalid-field", tick.startsAt + 16, "no such timer", `${path}.timerName`);
    }
  });
}

// A bare stream: what is wrong together is said only when every field is right and every byte used (W3.4).
export function decodeEnvelope(octets, trace = null) {
  const reader = new Reader(octets, trace);
  const value = {};
  const starts = {};
  for (const [name, type] of envelope.fields) {
    starts[name] = reader.at;
    value[name] = reader.named(name, () => type.read(reader));
  }
  reader.finish();
  together(reader, value, starts);
  return value;
}

export function encodeEnvelope(value) {
  const writer = new Writer();
  envelope.write(writer, value);
  return writer.joined();
}
