"""Lua scripts that change no task: what processes agree on, what is used once, lists, totals."""

from __future__ import annotations

from gateway.storage.scripts import CLOCK, GROUP, VIEW_FIELDS, Script

SPENT_ANSWER_MS = 60_000
"""How long an identical repeat of a single-use request gets the first answer."""

_LARGE_FIELDS = frozenset({"open", "questions", "result"})

BRIEF_FIELDS = (*(name for name in VIEW_FIELDS if name not in _LARGE_FIELDS), "failed")
"""What a reader of a list gets of each task."""

AGREE = Script(
    """
-- Write down what a deployment agrees on, or return what is written. KEYS[1] the number of partitions, KEYS[2] the
-- sealed secret; 1 the number, 2 its lifetime (ms), 3 the secret, 4 its lifetime. Another number changes nothing.
local agreed, secret = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if agreed and agreed ~= ARGV[1] then return {agreed} end
if not agreed then redis.call('SET', KEYS[1], ARGV[1]) end
if not secret then redis.call('SET', KEYS[2], ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {ARGV[1], secret or ARGV[3]}
"""
)

REPLACE = Script(
    """
-- Replace a value for what is left of its lifetime, unless somebody else did. KEYS[1] where, 1 the old one, 2 the new.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
"""
)

SPEND = Script(
    """
-- Use something once. KEYS[1] the mark, KEYS[2] the first answer. 1 a token that tells a repeat of this very attempt,
-- 2 lifetime (ms).
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) or redis.call('GET', KEYS[1]) == ARGV[1] then
  return {'first'}
end
return {'spent', redis.call('GET', KEYS[2])}
"""
)

FORGET_CONSUMERS = Script(
    """
-- Forget consumers that hold nothing. KEYS[1] a queue, 1 the idle time (ms) from which on, 2 one to forget at once.
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

PAGE = Script(
    CLOCK
    + """
-- List ids and expiries of an owner's living tasks, in this order of expiry and id. KEYS[1] the owner's index, 1 how
-- many at most, 2 and 3 expiry and id of the last one that is not wanted, or '' twice.

-- As the index compares; Lua's own operators follow the server's locale.
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
    + """
-- Read tasks of one owner in brief, KEYS, after the time of reading.
local briefs = {now}
for _, task in ipairs(KEYS) do
  briefs[#briefs + 1] = redis.call('HMGET', task, """
    + ", ".join(f"'{name}'" for name in BRIEF_FIELDS)
    + """)
end
return briefs
"""
)

TOTALS = Script(
    CLOCK
    + """
-- Count the living tasks in each of the indexes KEYS; it takes the same time however many there are.
local counts = {}
for i, index in ipairs(KEYS) do
  counts[i] = redis.call('ZCOUNT', index, '(' .. now, '+inf')
end
return counts
"""
)
