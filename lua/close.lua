-- Closes a purse for good: nothing is put in or spent from then on, so what was spent can be settled with the bank.
-- Closing it again says the same.
-- KEYS[1] the purse
-- ARGV[1] now in unix ms; empty: Redis' own time
-- ARGV[2] leave it open when something was spent within so many ms; 0: close it whatever happens
-- Reply   state (0 there was none in this life, 1 closed, 2 left open), units spent
-- Invariant: what is settled can no longer be spent.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local life = tonumber(string.sub(id, 1, 13), 16)
local function save(...)
  -- An hour: longer than any block can be on its way.
  redis.call('SET', KEYS[1], struct.pack('>dddddddB', life, ...), 'PX', 3600000)
end
local stored = redis.call('GET', KEYS[1])
if stored then
  local l, units, spent, bank, ends, top, used, closed = struct.unpack('>dddddddB', stored)
  if l == life then
    if closed == 2 then return {0, 0} end
    if closed == 0 and now - used < tonumber(ARGV[2]) then return {2, spent} end
    if closed == 0 then save(0, spent, bank, ends, top, used, 1) end
    return {1, spent}
  end
end
save(0, 0, -1, 0, 0, now, 2)
return {0, 0}
