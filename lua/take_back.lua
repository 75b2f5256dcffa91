-- Takes the units out of window leases that are at rest or whose window has ended, so that they can be given back.
-- KEYS    window leases
-- ARGV[1] now in Unix ms; empty: Redis' own time
-- ARGV[2] for how long a lease must be at rest, in ms
-- Reply   packed doubles, for each key: 0 there is none or it is empty, 1 it is in use, 2 units were taken; then the
--         generation of the home, the number of the window, the units
-- Values  as in consume.lua. A lease of another generation or of a later format version counts as none.
local call, read, write = redis.call, struct.unpack, struct.pack
local now, version = tonumber(ARGV[1]), 1
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
local life, reply = tonumber(string.sub(id, 1, 13), 16), {}
for k = 1, #KEYS do
  local state, home, number, units = 0, 0, 0, 0
  local stored = call('GET', KEYS[k])
  if stored and (string.byte(stored, 105) or 1) <= version then
    local fields = {read('>dddddddddddddB', stored)}
    if fields[1] == life and fields[5] > 0 then
      state, home, number = 1, fields[2], fields[3]
      if now - fields[13] >= tonumber(ARGV[2]) or now >= fields[7] then
        state, units = 2, fields[5]
        call('SETRANGE', KEYS[k], 32, write('>d', 0))
      end
    end
  end
  reply[k] = write('>dddd', state, home, number, units)
end
return table.concat(reply)
