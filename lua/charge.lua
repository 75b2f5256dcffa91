-- Adds costs to windows regardless of their limits: costs admitted without Redis or, if negative, refunds.
-- KEYS    windows; a window that is charged for two of its numbers occurs twice
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] packed, for each key: number of the window, duration in ms, cost (8 bytes each, doubles)
-- ARGV[3] the generation of the Redis in which the costs were counted; absent: any. Nothing is changed in another one.
-- Reply   packed doubles, for each key: effective count afterwards, number of the latest window
-- Values  as in consume.lua. A window of a later format version counts as full and stays unchanged.
-- Invariant: an expired window is not written, and no count falls below 0.
local call, read, write, floor, max = redis.call, struct.unpack, struct.pack, math.floor, math.max
local version, full = 1, 9007199254740992
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local valid = true
if ARGV[3] then
  local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  valid = tonumber(string.sub(id, 1, 13), 16) == tonumber(ARGV[3])
end
local reply, at = {}, 1
for k = 1, #KEYS do
  local number, duration, cost
  number, duration, cost, at = read('>ddd', ARGV[2], at)
  local last, count, before = -1, 0, 0
  local stored = call('GET', KEYS[k])
  if stored then last, count, before = read('>ddd', stored) end
  if stored and (string.byte(stored, 25) or 1) > version then
    reply[k] = write('>dd', full, floor(now / duration))
  else
    -- If the clock went back, time stands still at the start of the window, as in consume.lua.
    local current = max(floor(now / duration), last)
    if last < current then
      last, count, before = current, 0, last == current - 1 and count or 0
    end
    if number >= current then
      -- What a refund finds no longer in the window was taken in the one before.
      if count + cost < 0 then before = max(0, before + count + cost) end
      count = max(0, count + cost)
    elseif number == current - 1 then
      before = max(0, before + cost)
    end
    if valid and number >= current - 1 and (stored or cost > 0) then
      call('SET', KEYS[k], write('>dddB', last, count, before, version), 'PX', max(1, (last + 2) * duration - now))
    end
    local left = math.min(duration, (last + 1) * duration - now)
    reply[k] = write('>dd', count + floor(before * left / duration), last)
  end
end
return table.concat(reply)
