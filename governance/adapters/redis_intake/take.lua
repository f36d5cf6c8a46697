-- Moves what waits on many queues into one new list, each queue its fair part, and returns it.
-- KEYS[1]  index: hash of every intake list, <boot>:<n> -> "<t|h> <deliveries> <whose lists these are>"
-- KEYS[2]  the new list; each of its items is "<queue>\0<item>"
-- ARGV[1]  field of the new list   ARGV[2] items at most   ARGV[3] bytes at most   ARGV[4] its index entry
-- ARGV[5]  place of the queue that comes first, from 0
-- ARGV[6]  JSON array of the queues   ARGV[7] "", or that of their lists of lower priorities, three a queue
-- The queues are no KEYS: declaring a thousand of them costs the caller more than all that is done here.
-- Returns {broker's time in us, index entry, place of the queue to come first next, lists of lower priorities
-- that held something, items oldest first…}. A list that exists already was moved by a call whose answer was
-- lost: it is returned as it is.
local CHUNK = 8 -- items looked at together: each may have 4 MiB
local now = redis.call('TIME')
local at = string.format('%.0f', now[1] * 1000000 + now[2])
local limit, size_max, start = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])

if redis.call('EXISTS', KEYS[2]) == 1 then
  local kept = redis.call('LRANGE', KEYS[2], 0, -1)
  local answer = {at, redis.call('HGET', KEYS[1], ARGV[1]) or '', ARGV[5], '1'}
  for place = #kept, 1, -1 do answer[#answer + 1] = kept[place] end
  return answer
end

local queues = cjson.decode(ARGV[6])

-- Queue's place -> those of its lists of lower priorities that hold something.
local lower, lower_count = {}, 0
if ARGV[7] ~= '' then
  local lists = cjson.decode(ARGV[7])
  for first = 1, #lists, 99 do
    local last = math.min(first + 98, #lists)
    if redis.call('EXISTS', unpack(lists, first, last)) > 0 then
      for place = first, last do
        if redis.call('EXISTS', lists[place]) == 1 then
          local queue = math.floor((place - 1) / 3) + 1
          lower[queue] = lower[queue] or {}
          table.insert(lower[queue], lists[place])
          lower_count = lower_count + 1
        end
      end
    end
  end
end

local open = {}
for step = 0, #queues - 1 do
  local queue = (start + step) % #queues + 1
  local lists = lower[queue] or {}
  if redis.call('EXISTS', queues[queue]) == 1 then table.insert(lists, 1, queues[queue]) end
  if lists[1] then open[#open + 1] = {place = queue - 1, name = queues[queue], lists = lists} end
end

local items, size, full = {}, 0, false

-- Moves up to so many items of one queue, the first whatever its share of bytes is; whether more may wait.
local function draw(line, most, size_most)
  local drawn, drawn_size = 0, 0
  while line.lists[1] and drawn < most do
    local source = line.lists[1]
    local wanted = math.min(most - drawn, CHUNK)
    local found = redis.call('LRANGE', source, -wanted, -1)
    local moved, is_over = {}, false
    for place = #found, 1, -1 do
      local item = found[place]
      full = #items > 0 and size + #item > size_max
      is_over = full or (drawn > 0 and drawn_size + #item > size_most)
      if is_over then break end
      size, drawn, drawn_size = size + #item, drawn + 1, drawn_size + #item
      moved[#moved + 1] = line.name .. '\0' .. item
      items[#items + 1] = moved[#moved]
    end
    if moved[1] then
      if #items == #moved then redis.call('HSET', KEYS[1], ARGV[1], ARGV[4]) end
      redis.call('LPUSH', KEYS[2], unpack(moved))
      redis.call('LTRIM', source, 0, -(#moved + 1))
    end
    if is_over then return true end
    if #found < wanted then table.remove(line.lists, 1) end
  end
  return line.lists[1] ~= nil
end

-- Everybody the same share; what some leave is shared by those who have more.
local next_start = (start + 1) % math.max(#queues, 1)
local is_first = true
while open[1] and #items < limit and not full do
  local share = math.max(1, math.floor((limit - #items) / #open))
  local size_share = (size_max - size) / #open
  local still = {}
  for _, line in ipairs(open) do
    if #items >= limit or full then
      if is_first then next_start = line.place end
      break
    end
    if draw(line, math.min(share, limit - #items), size_share) then still[#still + 1] = line end
    if is_first and full then next_start = line.place end
  end
  open, is_first = still, false
end

local answer = {at, items[1] and ARGV[4] or '', string.format('%d', next_start), string.format('%d', lower_count)}
for place = 1, #items do answer[#answer + 1] = items[place] end
return answer
