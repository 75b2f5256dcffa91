-- Empties a purse.
-- KEYS[1]    the purse
-- Reply      the units that were in it
-- Invariant  what is given back can no longer be spent.
local stored = redis.call('GET', KEYS[1])
if not stored then return 0 end
redis.call('DEL', KEYS[1])
return (struct.unpack('>dd', stored))
