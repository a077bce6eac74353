// Terminal results and failure codes (the table under W4).
import { enumeration, range } from "./bytes.mjs";

export const terminalResult = enumeration(4, [0, ...range(101, 113)]);

const CODES = {
  102: [1, 6, 8, 9, 10, 11, 14],
  104: [12, 16],
  105: [2, 5, 13, 17, 19, 20, 35],
  106: [15, 18, 22],
  107: [3, 4, 7, 21, 33, 34],
};

export const failureCode = {
  read(reader) {
    const at = reader.at;
    const value = reader.number(4);
    if ((value >= 23 && value <= 32) || value > 35) reader.fail("unknown-error-code", at, `${value}`);
    return value;
  },
  write: (writer, value) => writer.number(value, 4),
};

export const realFailure = {
  read(reader) {
    const at = reader.at;
    const value = failureCode.read(reader);
    if (value === 0) reader.fail("invalid-field", at, "no failure");
    return value;
  },
  write: failureCode.write,
};

// W4.5: which failure codes go with a result, and that only result 0 has a payload.
export function checkResult(reader, value, starts, hasPayload) {
  const codes = CODES[value.terminalResult] ?? [0];
  const at = (name) => [starts[name], `${reader.path}.${name}`.replace(/^\./, "")];
  if (!codes.includes(value.failureCode)) {
    const [offset, path] = at("failureCode");
    reader.fail("invalid-field", offset, `${value.failureCode} does not go with ${value.terminalResult}`, path);
  }
  if (hasPayload && value.terminalResult !== 0) {
    const [offset, path] = at("hasPayload");
    reader.fail("invalid-field", offset, "a failure with a payload", path);
  }
}
