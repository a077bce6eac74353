// The Location Store on Redis (docs/reference/rows.md, "On Redis"): read, conditional write, scan.
import { RedisClient } from "./resp.mjs";

// One conditional write. KEYS: version, index, then each row key. ARGV: JSON {prefix, conditions, mutations}, then the
// values. Answers the new version, or nothing when a condition does not hold.
const WRITE = `
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local millis = math.floor(micros / 1000)
local plan = cjson.decode(ARGV[1])
for _, condition in ipairs(plan.conditions) do
  local row = redis.call('GET', KEYS[condition.key])
  local standing = ''
  if row then
    local expiry = tonumber(string.sub(row, 17, 32))
    if expiry == 0 or expiry > millis then standing = string.sub(row, 1, 16) end
  end
  if standing ~= condition.version then return false end
end
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local version = string.format('%016.0f', math.max(last + 1, micros))
redis.call('SET', KEYS[1], version)
for _, mutation in ipairs(plan.mutations) do
  local key = KEYS[mutation.key]
  local name = string.sub(key, plan.prefix + 1)
  if mutation.value == 0 then
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[2], name)
  else
    local expiry = 0
    if mutation.ttl > 0 then expiry = millis + mutation.ttl end
    redis.call('SET', key, version .. string.format('%016.0f', expiry) .. ARGV[mutation.value])
    if mutation.ttl > 0 then redis.call('PEXPIRE', key, mutation.ttl) end
    redis.call('ZADD', KEYS[2], 0, name)
  end
end
return version`;

export class LocationStore {
  constructor(host, port, namespace) {
    this.redis = new RedisClient(host, port);
    this.tag = `{sojourn:${namespace}}:`;
    this.rows = `${this.tag}row:`;
  }

  close() {
    this.redis.close();
  }

  // {version, value}, or null when no live row stands under the key.
  async read(key) {
    const [clock, row] = await Promise.all([this.redis.call("TIME"), this.redis.call("GET", this.rows + key)]);
    return row && live(row, clock) ? split(row) : null;
  }

  // conditions: [key, version or null for "missing"]; mutations: [key, Buffer or null for "delete", ttlMs].
  // The version of what was put, or null on a conflict; an error means that the outcome is not known.
  async write(conditions, mutations) {
    const keys = [`${this.tag}version`, `${this.tag}index`];
    const values = [];
    const number = (key) => {
      const at = keys.indexOf(this.rows + key);
      return at < 0 ? keys.push(this.rows + key) : at + 1;
    };
    const plan = {
      prefix: Buffer.byteLength(this.rows),
      conditions: conditions.map(([key, version]) => ({ key: number(key), version: version ?? "" })),
      mutations: mutations.map(
        ([key, value, ttl]) => (
          { key: number(key), value: value === null ? 0 : 1 + values.push(value), ttl: ttl ?? 0 }
        ),
      ),
    };
    const version = await this.redis.call("EVAL", WRITE, keys.length, ...keys, JSON.stringify(plan), ...values);
    return version === null ? null : version.toString("latin1");
  }

  // Every live row whose key starts with a prefix, in key order.
  async scan(prefix) {
    const found = [];
    const beyond = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
    const names = await this.redis.call("ZRANGEBYLEX", `${this.tag}index`, `[${prefix}`, `(${beyond}`);
    for (const name of names) {
      const row = await this.read(name.toString("utf8"));
      if (row !== null) found.push({ key: name.toString("utf8"), ...row });
    }
    return found;
  }
}

function live(row, [seconds, micros]) {
  const expiry = Number(row.subarray(16, 32).toString("latin1"));
  return expiry === 0 || expiry > Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
}

const split = (row) => ({ version: row.subarray(0, 16).toString("latin1"), value: Buffer.from(row.subarray(32)) });
