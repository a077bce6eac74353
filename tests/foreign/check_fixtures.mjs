// The peer's codec against the frozen fixtures: `node check_fixtures.mjs FOLDER`. Prints what was checked as JSON;
// ends with code 1 and one line for each difference.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { plain, WireError } from "./peer/bytes.mjs";
import { decodeCommand, encodeCommand } from "./peer/commands.mjs";
import { crc32c } from "./peer/crc32c.mjs";
import { decodeEnvelope, encodeEnvelope } from "./peer/envelopes.mjs";
import { authorityKey, parseAuthorityKey } from "./peer/keys.mjs";
import { decodeRecord, encodeRecord } from "./peer/records.mjs";

const load = (name) => JSON.parse(readFileSync(join(process.argv[2], `${name}.json`), "utf8"));
const hex = (text) => Buffer.from(text, "hex");
const checked = {};
const differences = [];

function check(group, name, test) {
  checked[group] = (checked[group] ?? 0) + 1;
  try {
    test();
  } catch (error) {
    differences.push(`${group}: ${name}: ${error.message.replaceAll("\n", " ").slice(0, 1500)}`);
  }
}

function refused(decode, wanted) {
  let found = null;
  try {
    decode();
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    found = error;
  }
  assert.ok(found, `accepted, not refused as ${wanted.word}`);
  assert.deepEqual(
    [found.word, found.offset, found.path],
    [wanted.word ?? "invalid-field", wanted.offset, wanted.path],
  );
}

const streams = { commands: (raw, trace) => decodeCommand([raw], trace), envelopes: decodeEnvelope };
const encoders = { commands: (value) => encodeCommand(value)[0], envelopes: encodeEnvelope };
for (const [kind, decode] of Object.entries(streams)) {
  for (const fixture of load(kind)) {
    check(kind, fixture.name, () => {
      const trace = {};
      assert.deepEqual(plain(decode(hex(fixture.bytes), trace)), fixture.value);
      assert.equal(encoders[kind](fixture.value).toString("hex"), fixture.bytes);
      for (const [path, offset] of Object.entries(fixture.offsets)) assert.equal(trace[path], offset, path);
    });
    for (const variant of fixture.malformed) {
      check(
        `malformed ${kind}`,
        `${fixture.name}, ${variant.what}`,
        () => refused(() => decode(hex(variant.bytes)), variant),
      );
    }
  }
}
for (const fixture of load("further_commands")) {
  check("further commands", fixture.name, () => {
    assert.deepEqual(plain(decodeCommand(fixture.parts.map(hex))), fixture.value);
    assert.deepEqual(encodeCommand(fixture.value).map((part) => part.toString("hex")), fixture.parts);
  });
}
for (const fixture of load("records")) {
  check("records", fixture.name, () => {
    assert.deepEqual(plain(decodeRecord(hex(fixture.bytes))), fixture.value);
    assert.equal(encodeRecord(fixture.value).toString("hex"), fixture.bytes);
  });
}
const keys = load("keys");
for (const { family, id, key } of keys.valid) {
  check("keys", key, () => {
    assert.equal(authorityKey(family, Buffer.from(id)), key);
    assert.deepEqual(parseAuthorityKey(key), [family, Buffer.from(id)]);
  });
}
for (const fixture of keys.malformed) {
  check("malformed keys", fixture.key, () => refused(() => parseAuthorityKey(fixture.key), fixture));
}
for (const fixture of load("checksums")) {
  check("checksums", fixture.bytes.slice(0, 18), () => assert.equal(crc32c(hex(fixture.bytes)), fixture.crc32c));
}

for (const difference of differences) console.error(difference);
console.log(JSON.stringify(checked));
process.exitCode = differences.length ? 1 : 0;
