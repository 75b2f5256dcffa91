-- Takes from any number of windows and at most one purse: all or nothing.
-- KEYS[1..n]  the windows; KEYS[n+1] the purse, where there is one
-- ARGV[1]     now in unix ms; empty: Redis' own time
-- ARGV[2]     n, then for each window: limit, duration in ms, cost
-- then, with a purse: cost, units to put in first, the bank's balance with them (-1: unknown)
-- Reply       now, 1 when taken, 0 when not; for each window: effective count before this call, number
--             of the window; then, with a purse: state (0 spent, 1 short, 2 exceeded), units, bank (-1: unknown)
-- Invariant   the effective count of a window never passes its limit; a purse never falls below 0.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local n = tonumber(ARGV[2])
local stored = redis.call('MGET', unpack(KEYS))
local cells, reply, taken = {}, { now, 1 }, true
for i = 1, n do
  local limit, duration, cost = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  local cell = cells[KEYS[i]]
  if not cell then
    local number = math.floor(now / duration)
    cell = { number = number, count = 0, before = 0, duration = duration }
    if stored[i] then
      local last, count, before = struct.unpack('>ddd', stored[i])
      if last >= number then
        -- A clock that stepped back stands still at the start of the window.
        cell.number, cell.count, cell.before = last, count, before
      elseif last == number - 1 then
        cell.before = count
      end
    end
    cells[KEYS[i]] = cell
  end
  local elapsed = math.max(now - cell.number * duration, 0)
  local effective = cell.count + math.floor(cell.before * (duration - elapsed) / duration)
  taken = taken and limit > 0 and effective + cost <= limit
  cell.count = cell.count + cost
  cell.dirty = cell.dirty or cost > 0
  reply[#reply + 1] = effective
  reply[#reply + 1] = cell.number
end
local purse = KEYS[n + 1]
if purse then
  local cost, put, known = tonumber(ARGV[3 * n + 3]), tonumber(ARGV[3 * n + 4]), tonumber(ARGV[3 * n + 5])
  local units, bank = 0, -1
  if stored[n + 1] then units, bank = struct.unpack('>dd', stored[n + 1]) end
  units = units + put
  if known >= 0 and (bank < 0 or known < bank) then bank = known end
  local state = 0
  if bank < 0 or (units < cost and units + bank >= cost) then state = 1 elseif units < cost then state = 2 end
  taken = taken and state == 0
  if taken then units = units - cost end
  if bank >= 0 and (put > 0 or known >= 0 or (taken and cost > 0)) then
    redis.call('SET', purse, struct.pack('>dd', units, bank), 'PX', ARGV[3 * n + 6])
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = units
  reply[#reply + 1] = bank
end
if taken then
  for key, cell in pairs(cells) do
    if cell.dirty then
      local ttl = (cell.number + 2) * cell.duration - now
      redis.call('SET', key, struct.pack('>ddd', cell.number, cell.count, cell.before), 'PX', string.format('%.0f', ttl))
    end
  end
else
  reply[2] = 0
end
return reply
