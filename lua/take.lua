-- Takes, each from any number of windows and at most one purse: all of it or nothing; one take after the other.
-- KEYS    every window and purse, each once
-- ARGV[1] now in unix ms; empty: Redis' own time
-- ARGV[2] the takes, packed. For each: how many windows (2 bytes), whether there is a purse (1 byte); for each window:
--         its place in KEYS (2 bytes), limit, duration in ms, cost (8 bytes each, doubles); for the purse: its place,
--         cost, units to put in first, the bank's balance with them (-1: unknown), lifetime in ms
-- Reply   for each take: 1 when taken, 0 when not; for each window: effective count before the take, number of the
--         window; for the purse: state (0 enough, 1 short, 2 exceeded), units, bank (-1: unknown)
-- Invariant: the effective count of a window never passes its limit; a purse never falls below 0.
local call, read, write, floor, min = redis.call, struct.unpack, struct.pack, math.floor, math.min
local now, takes = tonumber(ARGV[1]), ARGV[2]
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local stored = #KEYS > 0 and call('MGET', unpack(KEYS)) or {}
-- By the place in KEYS: windows with their lifetime, where it is not what it was; then purses.
local number, count, before, life = {}, {}, {}, {}
local units, bank, purse_life = {}, {}, {}
local changed, reply, filled, at = {}, {}, 0, 1
while at <= #takes do
  local windows, has_purse
  windows, has_purse, at = read('>I2B', takes, at)
  local taken, first, outcome = true, at, filled + 1
  filled, reply[outcome] = outcome, 0
  for _ = 1, windows do
    local k, limit, duration, cost
    k, limit, duration, cost, at = read('>I2ddd', takes, at)
    if not number[k] then
      local current, last, counted, earlier = floor(now / duration), -1, 0, 0
      if stored[k] then last, counted, earlier = read('>ddd', stored[k]) end
      if last >= current then
        -- A clock that stepped back stands still at the start of the window.
        number[k], count[k], before[k] = last, counted, earlier
      else
        number[k], count[k], before[k] = current, 0, last == current - 1 and counted or 0
        life[k] = (current + 2) * duration - now
      end
    end
    local left = min(duration, (number[k] + 1) * duration - now)
    local effective = count[k] + floor(before[k] * left / duration)
    taken = taken and limit > 0 and effective + cost <= limit
    count[k] = count[k] + cost
    reply[filled + 1], reply[filled + 2] = effective, number[k]
    filled = filled + 2
  end
  if has_purse == 1 then
    local k, cost, put, known, lifetime
    k, cost, put, known, lifetime, at = read('>I2dddd', takes, at)
    if not units[k] then
      units[k], bank[k] = 0, -1
      if stored[k] then units[k], bank[k] = read('>dd', stored[k]) end
    end
    units[k] = units[k] + put
    if known >= 0 and (bank[k] < 0 or known < bank[k]) then bank[k] = known end
    local state = 0
    if bank[k] < 0 or (units[k] < cost and units[k] + bank[k] >= cost) then
      state = 1
    elseif units[k] < cost then
      state = 2
    end
    taken = taken and state == 0
    if taken then units[k] = units[k] - cost end
    if bank[k] >= 0 and (put > 0 or known >= 0 or (taken and cost > 0)) then purse_life[k] = lifetime end
    reply[filled + 1], reply[filled + 2], reply[filled + 3] = state, units[k], bank[k]
    filled = filled + 3
  end
  if taken then reply[outcome] = 1 end
  for window = 0, windows - 1 do
    local k, _, _, cost = read('>I2ddd', takes, first + 26 * window)
    if not taken then
      count[k] = count[k] - cost
    elseif cost > 0 then
      changed[k] = true
    end
  end
end
for k in pairs(changed) do
  local value = write('>ddd', number[k], count[k], before[k])
  if life[k] then
    -- A whole number passes as it is: Redis writes it out exactly.
    call('SET', KEYS[k], value, 'PX', life[k])
  else
    call('SET', KEYS[k], value, 'KEEPTTL')
  end
end
for k, lifetime in pairs(purse_life) do
  call('SET', KEYS[k], write('>dd', units[k], bank[k]), 'PX', lifetime)
end
return reply
