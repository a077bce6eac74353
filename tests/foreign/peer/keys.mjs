// Authority keys (W7).
import { WireError } from "./bytes.mjs";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const PLAIN = /[A-Za-z0-9\-._~]/;

export function authorityKey(family, raw) {
  let escaped = "";
  for (const octet of raw) {
    const character = String.fromCharCode(octet);
    escaped += PLAIN.test(character) ? character : `%${octet.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return `zla1:${family}:${raw.length}:${escaped}`;
}

export function parseAuthorityKey(key) {
  const refuse = (offset, path) => {
    throw new WireError("invalid-field", offset, path, key);
  };
  if (!key.startsWith("zla1:")) refuse(0, "prefix");
  const family = key[5];
  if (!"as".includes(family) || key[6] !== ":") refuse(5, "family");
  const colon = key.indexOf(":", 7);
  const count = colon < 0 ? "" : key.slice(7, colon);
  if (!/^[1-9][0-9]{0,2}$/.test(count)) refuse(7, "count");
  const at = colon + 1;
  const octets = [];
  for (let index = at; index < key.length; index += 1) {
    if (PLAIN.test(key[index])) {
      octets.push(key.charCodeAt(index));
    } else if (/^%[0-9A-F]{2}/.test(key.slice(index))) {
      octets.push(parseInt(key.slice(index + 1, index + 3), 16));
      if (PLAIN.test(String.fromCharCode(octets.at(-1)))) refuse(at, "id");
      index += 2;
    } else {
      refuse(at, "id");
    }
  }
  const raw = Buffer.from(octets);
  if (raw.length !== Number(count) || raw.length > 255) refuse(7, "count");
  try {
    if (decoder.decode(raw).includes("\0")) refuse(at, "id");
  } catch {
    refuse(at, "id");
  }
  return [family, raw];
}
