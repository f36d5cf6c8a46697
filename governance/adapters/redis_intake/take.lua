-- Moves what waits on the first queue that has something into one new list, and returns it.
-- KEYS[1]  index: hash of every intake list, <boot>:<n> -> "<t|h> <deliveries> <queue>"
-- KEYS[2]  the new list
-- KEYS[3…] lists to take from, four a queue: Celery's priorities, first first
-- ARGV[1]  field of the new list   ARGV[2] items at most   ARGV[3] bytes at most   ARGV[4…] the queues' names
-- Returns {broker's time in us, index entry, items oldest first…}. A list that exists already was moved by a
-- call whose answer was lost: it is returned as it is.
local now = redis.call('TIME')
local at = string.format('%.0f', now[1] * 1000000 + now[2])
local limit, size_max = tonumber(ARGV[2]), tonumber(ARGV[3])
local items, size, full = {}, 0, false

local function drain(source)
  while #items < limit do
    local item = redis.call('LINDEX', source, -1)
    if not item then return end
    if #items > 0 and size + #item > size_max then full = true return end
    redis.call('LMOVE', source, KEYS[2], 'RIGHT', 'LEFT')
    size = size + #item
    items[#items + 1] = item
  end
end

if redis.call('EXISTS', KEYS[2]) == 0 then
  for queue = 4, #ARGV do
    for place = 0, 3 do
      if not full then drain(KEYS[3 + (queue - 4) * 4 + place]) end
    end
    if #items > 0 then
      local entry = 't 1 ' .. ARGV[queue]
      redis.call('HSET', KEYS[1], ARGV[1], entry)
      table.insert(items, 1, entry)
      table.insert(items, 1, at)
      return items
    end
  end
  return {at, ''}
end
items = redis.call('LRANGE', KEYS[2], 0, -1)
local answer = {at, redis.call('HGET', KEYS[1], ARGV[1]) or ''}
for place = #items, 1, -1 do answer[#answer + 1] = items[place] end
return answer
