-- Returns the era of the change feed, so that a reader that found nothing new knows that it read the right feed, and
-- how long ago other replicas read it.
-- KEYS[1] the feed
-- KEYS[2] this replica as a reader, KEYS[3..] other replicas as readers: each expires one minute after its last read
-- ARGV[1] 1: record that this replica reads the feed
-- Reply   the era, and for each other replica how many milliseconds ago it read the feed, -1 if longer than a minute;
--         the era is empty if there is no feed, it belongs to another Redis, or this Redis is not the master
local LIFE = 60000
local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return {'', {}} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return {'', {}} end
local era, generation = last[2][2], string.match(info, 'master_replid:(%x+)')
if string.sub(era, 1, #generation) ~= generation then return {'', {}} end
redis.call('PEXPIRE', KEYS[1], 86400000)
-- Extending the expiry needs no memory, which may be exhausted.
if ARGV[1] == '1' and redis.call('PEXPIRE', KEYS[2], LIFE) == 0 then
  redis.pcall('SET', KEYS[2], '', 'PX', LIFE)
end
local ages = {}
for i = 3, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  ages[i - 2] = left > 0 and left <= LIFE and LIFE - left or -1
end
return {era, ages}
