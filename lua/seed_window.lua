-- Begins the counting of a window whose counter moves here, with the count of the window before.
-- KEYS    the window
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] packed: number of the last window that was counted elsewhere, its count, duration in ms (8 bytes each, doubles)
-- Reply   packed: whether it has begun now (1) or before (0)
-- Values  as in consume.lua. A window that has begun already stays as it is.
local call, read, write = redis.call, struct.unpack, struct.pack
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local number, count, duration = read('>ddd', ARGV[2])
local stored = call('GET', KEYS[1])
if stored and read('>d', stored) >= number then return write('>d', 0) end
call('SET', KEYS[1], write('>dddB', number, count, 0, 1), 'PX', string.format('%.0f', math.max(1, (number + 2) * duration - now)))
return write('>d', 1)
