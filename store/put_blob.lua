-- Store an immutable blob. KEYS: blob key. ARGV: bytes, ttl in ms. Answer: 1 when it stands now, 0 when others do.
local found = redis.call('GET', KEYS[1])
if found then
  return found == ARGV[1] and 1 or 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
