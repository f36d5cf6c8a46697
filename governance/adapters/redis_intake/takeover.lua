-- Makes a dead boot's list another one's own, to be handed out again; returns how many items it holds.
-- KEYS[1] index: hash of every intake list, <boot>:<n> -> "<t|h> <deliveries> <queue>"
-- KEYS[2] the dead boot's list
-- KEYS[3] its new name
-- ARGV[1] field of the dead boot's list   ARGV[2] field of the new name
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
if redis.call('RENAMENX', KEYS[2], KEYS[3]) == 0 then return redis.error_reply('ERR the new name is taken') end
redis.call('HSET', KEYS[1], ARGV[2], 'h' .. string.sub(entry, 2))
return redis.call('LLEN', KEYS[3])
