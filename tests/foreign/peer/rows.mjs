// Rows of the Location Store (docs/reference/rows.md): their keys, their canonical JSON, and the writes of this peer.

export const rowBytes = (fields) => Buffer.from(JSON.stringify({ v: "1", ...fields }), "utf8");

export function rowFields(value) {
  const { v, ...fields } = JSON.parse(value.toString("utf8"));
  if (v !== "1" || !rowBytes(fields).equals(value)) throw new Error("a row that is not in canonical form");
  return fields;
}

export const leaseKey = (owner) => `lease:${owner.lease_generation}:${owner.owner_id}`;
export const descriptorKey = (run) => `node:${run.rid.toString("hex")}:${run.generation}`;
export const descriptorRun = (descriptor) => (
  { rid: Buffer.from(descriptor.rid, "hex"), generation: BigInt(descriptor.generation) }
);

export const leaseBytes = (owner) =>
  rowBytes(
    {
      rid: owner.rid,
      generation: owner.node_generation,
      owner_id: owner.owner_id,
      lease_generation: owner.lease_generation,
    },
  );

// The row after its move: owner, owner generation + 1, the RelocationId as committed; everything else stays.
export const movedRow = (row, owner, relocation) => ({
  ...row,
  owner_generation: (BigInt(row.owner_generation) + 1n).toString(),
  owner,
  relocation: mark(relocation, "committed"),
});

// The fence of a source: nothing but the mark changes.
export const fencedRow = (row, relocation) => ({ ...row, relocation: mark(relocation, "fenced") });

const mark = (relocation, outcome) => ({ high: relocation.high.toString(), low: relocation.low.toString(), outcome });

const marked = (row, relocation, outcome) =>
  row.relocation !== null &&
  row.relocation.high === relocation.high.toString() &&
  row.relocation.low === relocation.low.toString() &&
  row.relocation.outcome === outcome;

// Whether this row was written by that move: expected owner generation + 1 AND its RelocationId, whoever the owner is.
export const committedBy = (row, expectedGeneration, relocation) =>
  BigInt(row.owner_generation) === BigInt(expectedGeneration) + 1n && marked(row, relocation, "committed");

export const fencedBy = (row, relocation) => marked(row, relocation, "fenced");
