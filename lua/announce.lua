-- Appends an announcement to the change feed under the next number, so that a reader detects a missing one.
-- KEYS[1] the feed, a stream; an entry's ID is its number
-- ARGV[1] the announcement; empty: only return the end of the feed, and create the feed if it does not exist
-- ARGV[2] the channel that replicas of the version before the feed subscribe to
-- ARGV[3] the message for that channel; empty: none
-- Reply   the era of the feed, the number of its last entry
-- Invariant: within an era numbers are contiguous, and one Redis assigned all of them between two restarts or
-- failovers; a feed that was lost, or that another Redis continues, has another era.
local generation = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local number = last and tonumber(string.match(last[1], '^%d+')) or 0
local era = last and last[2][2] or ''
local is_new = string.sub(era, 1, #generation) ~= generation
if is_new then
  -- Derived from the time, so that numbers of a lost feed are not reused.
  local time = redis.call('TIME')
  number = math.max(number, time[1] * 1000000 + time[2])
  era = generation .. ':' .. string.format('%.0f', number)
end
if is_new or ARGV[1] ~= '' then
  number = number + 1
  local id = string.format('%.0f-0', number)
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', 4096, id, 'era', era, 'text', ARGV[1])
end
-- One day; readers renew it.
redis.call('PEXPIRE', KEYS[1], 86400000)
if ARGV[3] ~= '' then redis.call('PUBLISH', ARGV[2], ARGV[3]) end
return {era, string.format('%.0f', number)}
