-- One conditional write, all or nothing (B6.1).
-- KEYS: version counter, index, then every row key and blob key once. Row: 16 digits version, 16 digits expiry in ms (0 = never), value.
-- ARGV: length of the row prefix, number of conditions, per condition {key number, version or ''},
--       then per mutation {key number, ttl in ms or '0' (none) or 'x' (delete), value};
--       of a blob 'b' + ttl in ms, or 'd' (delete), in place of the ttl.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local cut = tonumber(ARGV[1]) + 1
local conditions = tonumber(ARGV[2])
local at = 3
for number = 1, conditions do
  local found = ''
  local header = redis.call('GETRANGE', KEYS[tonumber(ARGV[at])], 0, 31)
  if #header == 32 then
    local expires = tonumber(string.sub(header, 17))
    if expires == 0 or expires > now_ms then
      found = string.sub(header, 1, 16)
    end
  end
  if found ~= ARGV[at + 1] then
    return {0, number}
  end
  at = at + 2
end
-- A version is later than every one before, also than those a failover has forgotten (clocks permitting).
local version = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') + 1, now_us)
local version_text = string.format('%016.0f', version)
redis.call('SET', KEYS[1], version_text)
while at <= #ARGV do
  local key = KEYS[tonumber(ARGV[at])]
  local ttl = ARGV[at + 1]
  if ttl == 'x' then
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[2], string.sub(key, cut))
  elseif ttl == 'd' then
    redis.call('DEL', key)
  elseif string.byte(ttl) == 98 then
    redis.call('SET', key, ARGV[at + 2], 'PX', string.sub(ttl, 2))
  elseif ttl == '0' then
    redis.call('SET', key, version_text .. '0000000000000000' .. ARGV[at + 2])
    redis.call('ZADD', KEYS[2], 0, string.sub(key, cut))
  else
    local expires = string.format('%016.0f', now_ms + ttl)
    redis.call('SET', key, version_text .. expires .. ARGV[at + 2], 'PX', ttl)
    redis.call('ZADD', KEYS[2], 0, string.sub(key, cut))
  end
  at = at + 3
end
return {1, version_text}
