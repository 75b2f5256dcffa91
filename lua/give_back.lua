-- Gives back to windows what was taken from them, when the rest of the same take was refused in another place.
-- KEYS    windows
-- ARGV[1] packed, for each: the number of the window that it was taken from, the cost (8 bytes each, doubles)
-- Reply   how many were given something back
-- Invariant: what others took stays taken.
local given, at = 0, 1
for k = 1, #KEYS do
  local number, cost
  number, cost, at = struct.unpack('>dd', ARGV[1], at)
  local stored = redis.call('GET', KEYS[k])
  if stored then
    local last, count, before = struct.unpack('>ddd', stored)
    if last == number then
      count = math.max(0, count - cost)
    elseif last == number + 1 then
      before = math.max(0, before - cost)
    end
    redis.call('SET', KEYS[k], struct.pack('>ddd', last, count, before), 'KEEPTTL')
    given = given + 1
  end
end
return given
