-- Returns which leases were spent from recently, so that they are not closed as idle. Read-only.
-- KEYS    the leases
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] the number of ms that count as recently
-- Values  as in consume.lua. A lease of a later format version counts as in use, with 0 credits spent.
-- Reply   for each lease the credits spent from it; -1 if it is idle, closed or missing
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local reply = {}
for k, stored in ipairs(redis.call('MGET', unpack(KEYS))) do
  reply[k] = -1
  if stored and (string.byte(stored, 58) or 1) > 1 then
    reply[k] = 0
  elseif stored then
    local _, _, spent, _, _, _, used, closed = struct.unpack('>dddddddB', stored)
    if closed == 0 and now - used < tonumber(ARGV[2]) then reply[k] = spent end
  end
end
return reply
