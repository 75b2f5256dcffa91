-- Tells which era the change feed is in, so that a reader that found nothing new knows that it looked in the right place.
-- KEYS[1] the feed
-- Reply   the era; empty: there is no feed, it is that of another Redis, or this Redis is not the master
local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return '' end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return '' end
local era, generation = last[2][2], string.match(info, 'master_replid:(%x+)')
if string.sub(era, 1, #generation) ~= generation then return '' end
redis.call('PEXPIRE', KEYS[1], 86400000)
return era
