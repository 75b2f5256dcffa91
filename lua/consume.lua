-- Runs consume requests in order. Each consumes from any number of windows and at most one lease, all or nothing.
-- KEYS    every window, lease, group of ad-hoc counters and window lease, each once
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] the deadline after which nothing is done, because no caller waits any longer; empty: none
-- ARGV[3] the requests, packed. For each: number of windows (2 bytes), flags (1 byte: 1 a lease, or 2 a lease with a
--         top-up; 4 window leases; 8 a grant; 16 bounds); for a grant, which has one window: the cost of the callers that wait, the
--         least of them, in how many parts the rest is divided at least; for each window: its index in KEYS, the index
--         of its group (0: none), the maximum number of live counters in it (2 bytes each), limit, duration in ms, cost
--         (8 bytes each, doubles), for a grant the demand;
--         for the lease: its index, cost; for the top-up: the Redis generation that it belongs to, whether it creates
--         the lease (1) or the lease must exist (0), credits debited for this lease before, credits to add, the
--         account balance, when the next refill is due;
--         number of grants to add to window leases (2 bytes), and for each: the index of the lease (2 bytes), the
--         generation of this Redis in which it was asked for, that of the home, number of the window, limit, units, the
--         count at home, when the window ends, until when no more is granted (0: there is enough), the least that was
--         asked for (0: nothing); number of window leases to take from (2 bytes), and for each: its index (2 bytes),
--         limit, cost;
--         for bounds, for each window: the first number that is counted here, the last, the index of the name that holds
--         the first number if the count from before the move has been taken over (2 bytes; 0: it never moved here)
-- Reply   packed doubles, which are read and written faster than numbers of the protocol: now, the generation of this
--         Redis; nothing else if the deadline has passed. For each request: 0 rejected, 1 admitted, 2 admitted and a
--         counter of a group is now live for longer, 3 rejected because a group would have too many live counters,
--         4 rejected because a window is not counted here, or is the first that is and has no count from before; for
--         each window: effective count before the request, number of the window; for the lease: state (0 sufficient,
--         1 insufficient, 2 account exhausted, 3 closed, 4 the top-up belongs to another generation, 5 the top-up needs
--         a lease that does not exist), credits, account balance (-1: unknown), credits spent; for a grant: units
--         granted, ms until its window ends, ms after which it may succeed; for each window lease: state (0 sufficient,
--         1 insufficient, 2 denied by the home, 3 scarce at home a moment ago), units before the request, count at home,
--         number of the window (both 0 if the lease is not of the current window and this limit or a lower one), units
--         of the last grant, units spent since, ms since
-- Values  each ends with the version of its format, one byte, except the number of a begun window. A missing byte means version 1: programs that do not
--         know versions read the numbers, ignore the byte, and write none. A value of a later version is not
--         interpreted: its window counts as full and stays unchanged, its lease counts as missing.
-- A window lease holds units of a window that is counted in another region, where they have been counted already. It is
-- void in another generation, when its window has ended, and for a lower limit.
-- A group is a sorted set: a hash of the name of each live counter, scored by its expiry.
-- Invariant: the effective count of a window never exceeds its limit; a lease never falls below 0, and is void in any
-- generation other than the one in which it was created.
local call, read, write, floor, min, max = redis.call, struct.unpack, struct.pack, math.floor, math.min, math.max
local byte, version, full = string.byte, 1, 9007199254740992
local now, takes = tonumber(ARGV[1]), ARGV[3]
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return write('>dd', now, 0) end
local stored = #KEYS > 0 and call('MGET', unpack(KEYS)) or {}

-- A Redis that restarts or is promoted has another replication ID, whatever data it has.
local the_life
local function life()
  if not the_life then
    local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
    the_life = tonumber(string.sub(id, 1, 13), 16)
  end
  return the_life
end

-- Indexed like KEYS: windows with their lifetime if it has changed (until something is consumed: 1 if the previous
-- window still counts, 2 if the counter is new); groups that a counter was written to, and the number of live counters
-- of a group; then leases.
local number, count, before, life_of, fresh, grown, live = {}, {}, {}, {}, {}, {}, {}
local function count_live(group)
  if not live[group] then
    call('ZREMRANGEBYSCORE', KEYS[group], '-inf', string.format('%.0f', now))
    live[group] = call('ZCARD', KEYS[group])
  end
  return live[group]
end
local purses = {}
local function purse(k)
  local p = purses[k]
  if p then return p end
  p = {there = false, closed = 0, units = 0, spent = 0, bank = -1}
  if stored[k] and (byte(stored[k], 58) or 1) <= version then
    local l, units, spent, bank, ends, top, used, closed = read('>dddddddB', stored[k])
    if l == life() then
      p = {there = true, units = units, spent = spent, bank = bank, ends = ends, top = top, used = used, closed = closed}
    end
  end
  purses[k] = p
  return p
end

-- Window leases, indexed like KEYS. Most calls have none, and do not create what they need.
local holds, hold, add_grant
local function begin_holds()
  holds = {}
  function hold(k)
    local h = holds[k]
    if h then return h end
    h = {there = false}
    if stored[k] and (byte(stored[k], 105) or 1) <= version then
      local l, home, order, limit, units, known, ends, denied, less, granted, spent, since, used = read('>ddddddddddddd', stored[k])
      if l == life() then
        h = {there = true, home = home, number = order, limit = limit, units = units, known = known, ends = ends,
          denied = denied, less = less, granted = granted, spent = spent, since = since, used = used}
      end
    end
    holds[k] = h
    return h
  end

  -- Adds a grant. It may arrive late, at most once. `ends` and `denied` are in the time of this Redis: what it was before
  -- the home was asked, and a duration.
  function add_grant(h, told, home, order, limit, units, known, ends, denied, less)
    if told ~= life() then return end
    -- What was granted for a lower limit fits into a higher one, too.
    local same = h.there and h.home == home and h.number == order and h.limit <= limit
    if not same then
      if h.there and h.home == home and h.number > order then return end
      h.there, h.home, h.number, h.units, h.ends, h.used = true, home, order, 0, ends, now
    end
    if not same or h.limit ~= limit then h.limit, h.denied, h.less = limit, 0, 0 end
    if less > 0 then
      h.denied, h.less = units == 0 and denied or min(max(h.denied, denied), now), less
    end
    h.units, h.known, h.ends = h.units + units, known, max(h.ends, ends)
    h.granted, h.spent, h.since, h.changed = units, 0, now, true
  end
end

-- Applies a top-up. Top-ups may arrive late and in any order, each at most once. Exactly one top-up creates the lease,
-- and it arrives once: so a lost lease never exists again, and its spent credits are never forgotten.
local function put(p, told, opens, base, block, bank, ends)
  if told ~= life() then return 4 end
  if p.closed > 0 then return 3 end
  if not p.there then
    if opens == 0 then return 5 end
    p.there, p.top, p.used = true, -1, now
  end
  p.units = p.units + block
  if base + block >= p.top then p.top, p.bank, p.ends = base + block, bank, ends end
  p.changed, p.renewed = true, true
  return 0
end

local changed, reply, filled, at = {}, {now, 0}, 2, 1
while at <= #takes do
  local windows, flags, waiting, least, parts, granted, left
  windows, flags, at = read('>I2B', takes, at)
  local with_purse, retry = flags % 4, 0
  if flags % 16 >= 8 then waiting, least, parts, at = read('>ddd', takes, at) end
  local taken, first, outcome, group, most, created = true, at, filled + 1, 0, 0, 0
  filled, reply[outcome] = outcome, 0
  for _ = 1, windows do
    local k, g, live_max, limit, duration, cost
    k, g, live_max, limit, duration, cost, at = read('>I2I2I2ddd', takes, at)
    if not number[k] then
      local current, last, counted, earlier = floor(now / duration), -1, 0, 0
      if stored[k] then last, counted, earlier = read('>ddd', stored[k]) end
      if stored[k] and (byte(stored[k], 25) or 1) > version then last, counted, earlier = current, full, 0 end
      if last >= current then
        -- If the clock went back, time stands still at the start of the window.
        number[k], count[k], before[k] = last, counted, earlier
      else
        number[k], count[k], before[k] = current, 0, last == current - 1 and counted or 0
        life_of[k] = (current + 2) * duration - now
        fresh[k] = last < current - 1 and 2 or 1
      end
    end
    if g > 0 and cost > 0 then
      -- All grouped windows of one request belong to one group.
      group, most = g, live_max
      created = created + (fresh[k] == 2 and 1 or 0)
    end
    left = min(duration, (number[k] + 1) * duration - now)
    local effective = count[k] + floor(before[k] * left / duration)
    if least then
      local room = limit - effective
      cost = min(room, max(waiting, min(cost, floor(room / parts))))
      if cost < least then
        taken, cost = false, 0
        local lacking = limit - count[k] - least
        retry = lacking < 0 and left or max(0, left - (lacking + 1) * duration / before[k])
      end
      granted = cost
    end
    taken = taken and limit > 0 and effective + cost <= limit
    count[k] = count[k] + cost
    reply[filled + 1], reply[filled + 2] = effective, number[k]
    filled = filled + 2
  end
  local p, price, state
  if with_purse > 0 then
    local k
    k, price, at = read('>I2d', takes, at)
    p, state = purse(k), 0
    if with_purse == 2 then
      local told, opens, base, block, bank, ends
      told, opens, base, block, bank, ends, at = read('>dddddd', takes, at)
      state = put(p, told, opens, base, block, bank, ends)
    end
    if state == 0 then
      if p.closed > 0 then
        state = 3
      elseif not p.there or (with_purse == 1 and now >= p.ends) then
        state = 1
      elseif p.units < price then
        state = p.units + p.bank >= price and 1 or 2
      end
    end
    -- A peek costs nothing and is never rejected by the lease.
    taken = taken and (state == 0 or price == 0)
  end
  local holders, first_holder, states, shown, lasting = 0, at
  if flags % 8 >= 4 then
    if not holds then begin_holds() end
    states, shown, lasting = {}, {}, {}
    local grants
    grants, at = read('>I2', takes, at)
    for _ = 1, grants do
      local k, told, home, order, limit, units, known, ends, denied, less
      k, told, home, order, limit, units, known, ends, denied, less, at = read('>I2ddddddddd', takes, at)
      add_grant(hold(k), told, home, order, limit, units, known, ends, denied, less)
    end
    holders, at = read('>I2', takes, at)
    first_holder = at
    for i = 1, holders do
      local k, limit, cost
      k, limit, cost, at = read('>I2dd', takes, at)
      local h = hold(k)
      local lasts = h.there and h.limit <= limit and now < h.ends
      shown[i], states[i], lasting[i] = lasts and h.units or 0, 0, lasts
      if cost > shown[i] then
        -- For a second after its home had nothing, or nearly nothing, nobody waits for it to be asked again.
        local scarce = lasts and h.limit == limit and cost - shown[i] >= h.less and now < h.denied + 1000
        states[i], taken = scarce and (now < h.denied and 2 or 3) or 1, false
      elseif not lasts or (cost == 0 and now - h.since > 1000) then
        -- A peek of a count that is unknown or too old. If it were admitted, the request would run again when the home
        -- has told it.
        states[i], taken = 1, false
      else
        h.units = h.units - cost
      end
    end
  end
  if flags >= 16 then
    for window = 0, windows - 1 do
      local k, from, to, begun = (read('>I2', takes, first + 30 * window))
      from, to, begun, at = read('>ddI2', takes, at)
      local lacks = begun > 0 and number[k] == from and not (stored[begun] and read('>d', stored[begun]) == from)
      if number[k] < from or number[k] > to or lacks then
        taken, reply[outcome] = false, 4
      end
    end
  end
  if taken and created > 0 and count_live(group) + created > most then
    taken, reply[outcome] = false, 3
  end
  if p then
    if taken and price > 0 then
      p.units, p.spent, p.used, p.changed = p.units - price, p.spent + price, now, true
    end
    reply[2] = life()
    reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4] = state, p.units, p.bank, p.spent
    filled = filled + 4
  end
  if least then
    reply[2] = life()
    reply[filled + 1], reply[filled + 2], reply[filled + 3] = taken and granted or 0, left, retry
    filled = filled + 3
  end
  for i = 1, holders do
    local k, _, cost = read('>I2dd', takes, first_holder + 18 * (i - 1))
    local h = hold(k)
    if states[i] == 0 and cost > 0 then
      if taken then
        h.spent, h.used, h.changed = h.spent + cost, now, true
      else
        h.units = h.units + cost
      end
    end
    reply[2] = life()
    local known, order = lasting[i] and h.known or 0, lasting[i] and h.number or 0
    for _, value in ipairs({states[i], shown[i], known, order, h.granted or 0, h.spent or 0, now - (h.since or now)}) do
      filled = filled + 1
      reply[filled] = value
    end
  end
  if taken then reply[outcome] = 1 end
  for window = 0, windows - 1 do
    local k, g, _, _, _, cost = read('>I2I2I2ddd', takes, first + 30 * window)
    cost = granted or cost
    if not taken then
      count[k] = count[k] - cost
    elseif cost > 0 then
      changed[k] = true
      if g > 0 and fresh[k] then
        grown[g], reply[outcome] = true, 2
        local name = string.sub(redis.sha1hex(KEYS[k]), 1, 20)
        local added = call('ZADD', KEYS[g], string.format('%.0f', now + life_of[k]), name)
        if live[g] then live[g] = live[g] + added end
      end
      fresh[k] = nil
    end
  end
end

for k in pairs(changed) do
  local value = write('>dddB', number[k], count[k], before[k], version)
  if life_of[k] then
    -- A whole number is passed unchanged: Redis formats it exactly.
    call('SET', KEYS[k], value, 'PX', life_of[k])
  else
    call('SET', KEYS[k], value, 'KEEPTTL')
  end
end
for g in pairs(grown) do
  -- The group lives as long as its longest counter.
  local longest = call('ZREVRANGE', KEYS[g], 0, 0, 'WITHSCORES')[2]
  call('PEXPIRE', KEYS[g], string.format('%.0f', longest - now))
end
for k, p in pairs(purses) do
  if p.changed then
    local value = write('>dddddddBB', life(), p.units, p.spent, p.bank, p.ends, p.top, p.used, p.closed, version)
    if p.renewed then
      -- One day longer than the refill period; a lease without one is kept as with the longest period, and a top-up
      -- renews it.
      call('SET', KEYS[k], value, 'PX', min(math.max(p.ends - now, 0), 2678400000) + 86400000)
    else
      call('SET', KEYS[k], value, 'KEEPTTL')
    end
  end
end
if holds then
  for k, h in pairs(holds) do
    if h.changed then
      local value = write('>dddddddddddddB', life(), h.home, h.number, h.limit, h.units, h.known, h.ends, h.denied, h.less,
        h.granted, h.spent, h.since, h.used, version)
      -- A minute longer, so that what is left can be given back.
      call('SET', KEYS[k], value, 'PX', max(h.ends - now, h.denied - now, 0) + 60000)
    end
  end
end
-- In parts, because a function takes a limited number of arguments.
local parts = {}
for i = 1, #reply, 128 do
  local last = min(i + 127, #reply)
  parts[#parts + 1] = write('>' .. string.rep('d', last - i + 1), unpack(reply, i, last))
end
return table.concat(parts)
