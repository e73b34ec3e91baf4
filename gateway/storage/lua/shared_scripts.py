"""Lua scripts that change no task: for agreements, single use, lists and totals."""

from __future__ import annotations

from gateway.sealing.formats import FIRST
from gateway.storage.lua.task_scripts import (
    BRIEF_FIELDS,
    CLOCK,
    DEADLINE,
    GROUP,
    IS_LARGE,
    PLAIN_FIELDS,
    SEALED_FIELDS,
    Script,
    quoted,
)
from gateway.storage.redis_keys import OWNER_CHARS

SPENT_ANSWER_MS = 60_000
"""How long an identical repetition of a single-use request gets the first answer."""

AGREE = Script(
    DEADLINE
    + """
-- Record what a deployment agrees on, or return the record. KEYS[1] the number of partitions, KEYS[2] the sealed
-- secret, KEYS[3] the store's format number; 1 the number of partitions, 2 its lifetime (ms), 3 the secret, 4 its
-- lifetime, 5 the highest format that the process reads, 6 the one it writes. An unknown format or a different number
-- of partitions changes nothing.
local agreed, secret, format = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])
local number = tonumber(string.match(format or '"""
    + str(FIRST)
    + """', '^%d+$'))
if not number or number > tonumber(ARGV[5]) then return {format} end
if agreed and agreed ~= ARGV[1] then return {format or '', agreed} end
if not agreed then redis.call('SET', KEYS[1], ARGV[1]) end
if not secret then redis.call('SET', KEYS[2], ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
-- Only processes that write a format keep its number alive, so it goes with the last tasks in that format.
if number <= tonumber(ARGV[6]) then redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[2]) end
return {format or '', ARGV[1], secret or ARGV[3]}
"""
)

TELL = Script(DEADLINE + "return redis.call('PUBLISH', ARGV[1], ARGV[2])")
"""Publish on a channel. KEYS[1] is any key on the server to use; 1 the channel, 2 the message."""

REPLACE = Script(
    DEADLINE
    + """
-- Replace a value for the rest of its lifetime, if it is still the old one. KEYS[1] its key, 1 the old, 2 the new one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
"""
)

NOW = Script(CLOCK + "return now")
"""Return the time on the server that holds KEYS[1]."""

_MARK = """
-- The mark of a single use is `<state> <use> <request> <until>`. States:
-- held  reserved by a use that has not begun; the reservation expires
-- kept  reserved until the given time; after that, only the same request may use it
-- runs  begun; until the given time, the same request may still get an answer
-- used  over
local function read()
  local mark = redis.call('GET', KEYS[1])
  if not mark then return nil end
  local state, use, request, till = string.match(mark, '^(%l+) (%x+) (%x+) (%d+)$')
  return state or 'used', use, request, tonumber(till or 0)
end
local function write(state, use, request, till, ...)
  redis.call('SET', KEYS[1], string.format('%s %s %s %.0f', state, use, request, till), ...)
end
"""

SPEND = Script(
    DEADLINE
    + _MARK
    + """
-- Reserve something that can be used once. KEYS[1] the mark, KEYS[2] the first answer. 1 the use, 2 the request, 3 how
-- long (ms) to hold it until the use begins, 4 lifetime (ms).
local state, use, request, till = read()
local till_now = now + tonumber(ARGV[3])
if not state then
  write('held', ARGV[1], ARGV[2], till_now, 'PX', ARGV[3])
  return {'first', 0}
end
if use == ARGV[1] and state == 'held' then return {'first', 0} end
if use == ARGV[1] and state == 'kept' then return {'first', 1} end
local same = request == ARGV[2]
if state == 'kept' and same and now >= till then
  write('kept', ARGV[1], ARGV[2], till_now, 'PX', ARGV[4])
  return {'first', 1}
end
if state == 'held' or state ~= 'used' and same and now < till then return {'running'} end
return {'spent', redis.call('GET', KEYS[2])}
"""
)

BEGIN = Script(
    DEADLINE
    + _MARK
    + """
-- Begin a use; return whether it may begin. KEYS[1] the mark, 1 the use, 2 lifetime (ms), 3 how long (ms) it may run.
local state, use, request, till = read()
if not state or use ~= ARGV[1] then return 0 end
if state == 'held' or state == 'kept' and now < till then
  write('runs', use, request, now + tonumber(ARGV[3]), 'PX', ARGV[2])
  return 1
end
return state == 'runs' and 1 or 0
"""
)

END_USE = Script(
    DEADLINE
    + _MARK
    + """
-- End a use that has no answer. KEYS[1] the mark, 1 the use, 2 the new state of the mark, or '' to remove it.
local state, use, request = read()
if use ~= ARGV[1] or state == 'used' then return end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else write(ARGV[2], '0', request, 0, 'KEEPTTL') end
"""
)

KEEP_ANSWER = Script(
    _MARK
    + """
-- End a use with its answer. KEYS[1] the mark, KEYS[2] the answer, KEYS[3] the bytes of the owner's answers. 1 the
-- answer, 2 how long (ms) to keep it, 3 the most bytes of an owner in that time. Return whether there was room.
local state, use, request = read()
if request then write('used', use, request, 0, 'KEEPTTL') end
local bytes = redis.call('INCRBY', KEYS[3], #ARGV[1])
if bytes == #ARGV[1] then
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
elseif bytes > tonumber(ARGV[3]) then
  redis.call('DECRBY', KEYS[3], #ARGV[1])
  return 0
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
"""
)

FORGET_CONSUMERS = Script(
    DEADLINE
    + """
-- Forget consumers that hold no entries. KEYS[1] a queue, 1 the least idle time (ms), 2 a consumer to forget at once.
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], '"""
    + GROUP
    + """')
if consumers.err then return end
for _, consumer in ipairs(consumers) do
  local about = {}
  for i = 1, #consumer, 2 do about[consumer[i]] = consumer[i + 1] end
  if about.pending == 0 and (about.idle >= tonumber(ARGV[1]) or about.name == ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], '"""
    + GROUP
    + """', about.name)
  end
end
"""
)

MAKE_WAY = Script(
    """
-- Move unstarted tasks behind the first task of an owner who is not listed. KEYS[1] a queue, 1 the start of the keys of
-- its tasks, 2 how many entries to look at, 3 how many to move if none is such a task and there may be more, then the
-- owners. Moving an entry changes the key of its task, which is in the same slot as the queue.
local named = {}
for i = 4, #ARGV do named[ARGV[i]] = true end
local function owner_of(entry) return string.sub(entry[2][2], 1, """
    + str(OWNER_CHARS)
    + """) end
local groups, last = redis.pcall('XINFO', 'GROUPS', KEYS[1]), nil
if groups.err then return 0 end
for _, group in ipairs(groups) do
  local about = {}
  for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
  if about.name == '"""
    + GROUP
    + """' then last = about['last-delivered-id'] end
end
if not last then return 0 end
local first = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
if first and not named[owner_of(first)] then return 1 end
local entries, limit = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', ARGV[2]), tonumber(ARGV[2])
local before, found = #entries, 0
for i, entry in ipairs(entries) do
  if not named[owner_of(entry)] then
    before, found = i - 1, 1
    break
  end
end
if found == 0 then before = #entries == limit and tonumber(ARGV[3]) or 0 end
for i = 1, before do
  local id, member = entries[i][1], entries[i][2][2]
  local task = ARGV[1] .. owner_of(entries[i]) .. ':' .. string.sub(member, """
    + str(OWNER_CHARS + 1)
    + """)
  if redis.call('HGET', task, 'entry') == id then
    redis.call('HSET', task, 'entry', redis.call('XADD', KEYS[1], '*', 'task', member))
  end
  redis.call('XDEL', KEYS[1], id)
end
return found
"""
)

PAGE = Script(
    CLOCK
    + """
-- List the ids and expiries of an owner's living tasks, ordered by expiry and id. KEYS[1] the owner's index, 1 the
-- limit, 2 and 3 the expiry and id after which the list starts, or '' twice.

-- Compare as the index does; Lua's own operators follow the server's locale.
local function is_after(left, right)
  for i = 1, math.min(#left, #right) do
    local difference = string.byte(left, i) - string.byte(right, i)
    if difference ~= 0 then return difference > 0 end
  end
  return #left > #right
end

local from, skipped = '(' .. now, 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) > now then
  from = ARGV[2]
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], from, from)) do
    if is_after(id, ARGV[3]) then break end
    skipped = skipped + 1
  end
end
return redis.call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'WITHSCORES', 'LIMIT', skipped, ARGV[1])
"""
)

BRIEFS = Script(
    CLOCK
    + IS_LARGE
    + """
-- Return the time, then the brief fields of each task of one owner, none of a task that is large. KEYS the tasks.
local briefs = {now}
for _, task in ipairs(KEYS) do
  local large = is_large(task, """
    + quoted(name for name in SEALED_FIELDS if name in BRIEF_FIELDS)
    + """)
  briefs[#briefs + 1] = large and {} or redis.call('HMGET', task, """
    + quoted(BRIEF_FIELDS)
    + """)
end
return briefs
"""
)

TOTALS = Script(
    CLOCK
    + """
-- Return the time, then the number of living tasks in each index. KEYS the indexes. Takes the same time however many
-- tasks there are.
local counts = {now}
for i, index in ipairs(KEYS) do
  counts[i + 1] = redis.call('ZCOUNT', index, '(' .. now, '+inf')
end
return counts
"""
)

FACTS = Script(
    CLOCK
    + """
-- Return the time, then the plain fields of each task; before them, the worker that holds a running one, and how long
-- (ms) it has been silent. KEYS the queue, then the tasks.
local all = {now}
for i = 2, #KEYS do
  local fields = redis.call('HMGET', KEYS[i], """
    + quoted(PLAIN_FIELDS)
    + """)
  local entry, worker, silent = fields["""
    + str(PLAIN_FIELDS.index("entry") + 1)
    + """], '', 0
  if fields[1] == 'running' and entry and string.match(entry, '^%d+%-%d+$') then
    local pending = redis.pcall('XPENDING', KEYS[1], '"""
    + GROUP
    + """', entry, entry, 1)
    if pending[1] then worker, silent = pending[1][2], pending[1][3] end
  end
  all[i] = {worker, silent, unpack(fields)}
end
return all
"""
)
