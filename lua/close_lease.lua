-- Closes a lease permanently: no top-up or spend succeeds afterwards, so its unspent credits can return to the account.
-- Closing it again returns the same reply.
-- KEYS[1] the lease
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] leave it open if it was spent from within this many ms; 0: always close it
-- ARGV[3] the Redis generation in which the lease was created
-- Reply   state (0 no such lease in this generation, 1 closed, 2 left open, 3 this is another generation: the state of
--         the lease is unknown and unchanged), credits spent
-- Values  as in consume.lua. A lease of a later format version counts as in use, and as missing once it is closed: its
--         credits are withheld.
-- Invariant: credits that return to the account can no longer be spent.
local version, idle = 1, tonumber(ARGV[2])
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local life = tonumber(string.sub(id, 1, 13), 16)
if life ~= tonumber(ARGV[3]) then return {3, 0} end
local function save(...)
  -- One hour: longer than any top-up can be in flight.
  redis.call('SET', KEYS[1], struct.pack('>dddddddBB', life, ...), 'PX', 3600000)
end
local stored = redis.call('GET', KEYS[1])
if stored and (string.byte(stored, 58) or 1) > version then
  if idle > 0 then return {2, 0} end
elseif stored then
  local l, units, spent, bank, ends, top, used, closed = struct.unpack('>dddddddB', stored)
  if l == life then
    if closed == 2 then return {0, 0} end
    -- The clock may have gone back since the last spend.
    if closed == 0 and idle > 0 and now - used < idle then return {2, spent} end
    if closed == 0 then save(0, spent, bank, ends, top, used, 1, version) end
    return {1, spent}
  end
end
save(0, 0, -1, 0, 0, now, 2, version)
return {0, 0}
