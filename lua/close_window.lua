-- Ends the counting of a window whose counter moves to another Redis: from now on it counts as full.
-- KEYS    the window; the name under which its last count is kept
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] packed: number of the last window that is counted here, duration in ms (8 bytes each, doubles)
-- Reply   packed: the count of that window, the same each time
-- Values  as in consume.lua; the last count is the number of the window and the count, packed
local call, read, write = redis.call, struct.unpack, struct.pack
local version, full = 1, 9007199254740992
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local number, duration = read('>dd', ARGV[2])
local closed = call('GET', KEYS[2])
if closed then
  local of, count = read('>dd', closed)
  if of == number then return write('>d', count) end
end
local last, count, before = -1, 0, 0
local stored = call('GET', KEYS[1])
if stored then last, count, before = read('>ddd', stored) end
if stored and (string.byte(stored, 25) or 1) > version then return write('>d', full) end
local counted = last == number and count or last == number + 1 and before or 0
local kept = string.format('%.0f', math.max(1, (number + 2) * duration - now))
if last <= number then call('SET', KEYS[1], write('>dddB', number, full, 0, version), 'PX', kept) end
call('SET', KEYS[2], write('>dd', number, counted), 'PX', kept)
return write('>d', counted)
