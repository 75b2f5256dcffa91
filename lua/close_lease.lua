-- Closes a purse for good: nothing is put in or spent from then on, so what was spent can be settled with the bank.
-- Closing it again says the same.
-- KEYS[1] the purse
-- ARGV[1] now in unix ms; empty: Redis' own time
-- ARGV[2] leave it open when something was spent within so many ms; 0: close it whatever happens
-- ARGV[3] the life in which the purse was made
-- Reply   state (0 there was none in this life, 1 closed, 2 left open, 3 this is another life: nothing is known of the
--         purse, and nothing is changed), units spent
-- Values  as in take.lua. A purse of a later version counts as in use, and as none once it is closed: what it held is
--         withheld.
-- Invariant: what is settled can no longer be spent.
local version = 1
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local life = tonumber(string.sub(id, 1, 13), 16)
if life ~= tonumber(ARGV[3]) then return {3, 0} end
local function save(...)
  -- An hour: longer than any block can be on its way.
  redis.call('SET', KEYS[1], struct.pack('>dddddddBB', life, ...), 'PX', 3600000)
end
local stored = redis.call('GET', KEYS[1])
if stored and (string.byte(stored, 58) or 1) > version then
  if tonumber(ARGV[2]) > 0 then return {2, 0} end
elseif stored then
  local l, units, spent, bank, ends, top, used, closed = struct.unpack('>dddddddB', stored)
  if l == life then
    if closed == 2 then return {0, 0} end
    if closed == 0 and now - used < tonumber(ARGV[2]) then return {2, spent} end
    if closed == 0 then save(0, spent, bank, ends, top, used, 1, version) end
    return {1, spent}
  end
end
save(0, 0, -1, 0, 0, now, 2, version)
return {0, 0}
