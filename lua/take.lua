-- Takes from any number of windows and at most one purse: all or nothing.
-- KEYS[1..n]  the windows; KEYS[n+1] the purse, where there is one
-- ARGV[1]     now in unix ms; empty: Redis' own time
-- ARGV[2]     n, then for each window: limit, duration in ms, cost
-- then, with a purse: cost, units to put in first, the bank's balance with them (-1: unknown), lifetime in ms
-- Reply       now, 1 when taken, 0 when not; for each window: effective count before this call, number
--             of the window; then, with a purse: state (0 enough, 1 short, 2 exceeded), units, bank (-1: unknown)
-- Invariant   the effective count of a window never passes its limit; a purse never falls below 0.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local n = tonumber(ARGV[2])
local stored = redis.call('MGET', unpack(KEYS))
-- Windows by their place; one that is there twice counts at its first place.
local number, count, before, first, dirty = {}, {}, {}, {}, {}
local reply, taken, arg = { now, 1 }, true, 3
for i = 1, n do
  local key, limit, duration, cost = KEYS[i], tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local at = first[key]
  if not at then
    at = i
    first[key] = i
    number[i], count[i], before[i] = math.floor(now / duration), 0, 0
    if stored[i] then
      local last, counted, earlier = struct.unpack('>ddd', stored[i])
      if last >= number[i] then
        -- A clock that stepped back stands still at the start of the window.
        number[i], count[i], before[i] = last, counted, earlier
      elseif last == number[i] - 1 then
        before[i] = counted
      end
    end
  end
  local left = math.min(duration, (number[at] + 1) * duration - now)
  local effective = count[at] + math.floor(before[at] * left / duration)
  taken = taken and limit > 0 and effective + cost <= limit
  count[at] = count[at] + cost
  dirty[at] = dirty[at] or cost > 0
  reply[2 * i + 1], reply[2 * i + 2] = effective, number[at]
  arg = arg + 3
end
local purse = KEYS[n + 1]
if purse then
  local cost, put, known = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local units, bank = 0, -1
  if stored[n + 1] then units, bank = struct.unpack('>dd', stored[n + 1]) end
  units = units + put
  if known >= 0 and (bank < 0 or known < bank) then bank = known end
  local state = 0
  if bank < 0 or (units < cost and units + bank >= cost) then state = 1 elseif units < cost then state = 2 end
  taken = taken and state == 0
  if taken then units = units - cost end
  if bank >= 0 and (put > 0 or known >= 0 or (taken and cost > 0)) then
    redis.call('SET', purse, struct.pack('>dd', units, bank), 'PX', ARGV[arg + 3])
  end
  reply[2 * n + 3], reply[2 * n + 4], reply[2 * n + 5] = state, units, bank
end
if not taken then
  reply[2] = 0
  return reply
end
for i = 1, n do
  if dirty[i] then
    -- A whole number passes as it is: Redis writes it out exactly.
    local ttl = (number[i] + 2) * tonumber(ARGV[3 * i + 1]) - now
    redis.call('SET', KEYS[i], struct.pack('>ddd', number[i], count[i], before[i]), 'PX', ttl)
  end
end
return reply
