-- Moves the oldest item of a list that was taken over into a list of its own, counts the delivery, returns it.
-- KEYS[1] index: hash of every intake list, <boot>:<n> -> "<t|h> <deliveries> <queue>"
-- KEYS[2] the new list
-- KEYS[3] the list that was taken over
-- ARGV[1] field of the new list   ARGV[2] field of the list that was taken over
-- Returns {broker's time in us, index entry, items oldest first…}; a list that exists already is returned as is.
local now = redis.call('TIME')
local answer = {string.format('%.0f', now[1] * 1000000 + now[2]), ''}
if redis.call('EXISTS', KEYS[2]) == 0 then
  local held = redis.call('HGET', KEYS[1], ARGV[2])
  if held and redis.call('LMOVE', KEYS[3], KEYS[2], 'RIGHT', 'LEFT') then
    local deliveries, queue = string.match(held, '^h (%d+) (.*)$')
    redis.call('HSET', KEYS[1], ARGV[1], 't ' .. string.format('%d', deliveries + 1) .. ' ' .. queue)
  end
  if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('HDEL', KEYS[1], ARGV[2]) end
end
answer[2] = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local items = redis.call('LRANGE', KEYS[2], 0, -1)
for place = #items, 1, -1 do answer[#answer + 1] = items[place] end
return answer
