// CRC-32C (W5). `crc32c(octets, before)` goes on from an earlier result, so a stream may be cut anywhere.

const TABLE = new Int32Array(256);
for (let octet = 0; octet < 256; octet += 1) {
  let value = octet;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  TABLE[octet] = value;
}

export function crc32c(octets, before = 0) {
  let value = ~before;
  for (const octet of octets) value = TABLE[(value ^ octet) & 0xff] ^ (value >>> 8);
  return ~value >>> 0;
}
