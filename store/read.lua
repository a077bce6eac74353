-- One row. KEYS: row key. Answer: {store time in ms} or {store time, version, expiry (0 = never), value}.
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local row = redis.call('GET', KEYS[1])
if row then
  local expires = tonumber(string.sub(row, 17, 32))
  if expires == 0 or expires > now_ms then
    return {now_ms, string.sub(row, 1, 16), expires, string.sub(row, 33)}
  end
end
return {now_ms}
