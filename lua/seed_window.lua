-- Begins the counting of a window whose counter moves here, with the count of the window before.
-- KEYS    the window; the name that holds the number of the first window that has begun here
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] packed: number of the last window that was counted elsewhere, its count, duration in ms (8 bytes each, doubles)
-- Reply   packed: whether it has begun now (1) or before (0)
-- Values  as in consume.lua; the number of the first window, packed. What was counted here before that, without Redis or by
--         an earlier home, stays.
local call, read, write = redis.call, struct.unpack, struct.pack
local version = 1
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local number, count, duration = read('>ddd', ARGV[2])
local begun = call('GET', KEYS[2])
if begun and read('>d', begun) >= number + 1 then return write('>d', 0) end
local last, counted, before = -1, 0, 0
local stored = call('GET', KEYS[1])
if stored then last, counted, before = read('>ddd', stored) end
if stored and (string.byte(stored, 25) or 1) > version then return write('>d', 0) end
if last == number + 1 then
  before = count
elseif last <= number then
  if last == number then count = math.max(count, counted) end
  last, counted, before = number, count, 0
end
local kept = string.format('%.0f', math.max(1, (last + 2) * duration - now))
call('SET', KEYS[1], write('>dddB', last, counted, before, version), 'PX', kept)
call('SET', KEYS[2], write('>d', number + 1), 'PX', string.format('%.0f', math.max(1, (number + 3) * duration - now)))
return write('>d', 1)
