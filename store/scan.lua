-- Rows in key order. KEYS: index. ARGV: row prefix, lower and upper bound of the index (ZRANGEBYLEX), page size.
-- Answer: store time in ms, 1 when there is more, then {key, version, value} flat. Index entries of rows that have
-- expired are removed on the way. Row keys are built here: they share the index's hash tag.
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local lower = ARGV[2]
local limit = tonumber(ARGV[4])
local answer = {now_ms, 0}
local rows = 0
while true do
  local keys = redis.call('ZRANGEBYLEX', KEYS[1], lower, ARGV[3], 'LIMIT', 0, limit + 1)
  for _, key in ipairs(keys) do
    local row = redis.call('GET', ARGV[1] .. key)
    local expires = row and tonumber(string.sub(row, 17, 32))
    if not row or (expires ~= 0 and expires <= now_ms) then
      redis.call('ZREM', KEYS[1], key)
    elseif rows == limit then
      answer[2] = 1
      return answer
    else
      rows = rows + 1
      answer[#answer + 1] = key
      answer[#answer + 1] = string.sub(row, 1, 16)
      answer[#answer + 1] = string.sub(row, 33)
    end
    lower = '(' .. key
  end
  if #keys <= limit then
    return answer
  end
end
