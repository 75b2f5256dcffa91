-- Tells which purses somebody has spent from lately, so that they are not closed for resting. Changes nothing.
-- KEYS    the purses
-- ARGV[1] now in unix ms; empty: Redis' own time
-- ARGV[2] lately: within so many ms
-- Values  as in take.lua. A purse of a later version counts as in use, with 0 units spent.
-- Reply   for each purse the units spent from it; -1 where it rests, is closed, or is not there
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
