"""The transitions of a task. Each is one Lua script, so it happens completely or not at all.

All scripts get the same keys (`gateway.storage.redis_keys.TaskPlace.keys`) and start with the same three arguments: the
task's member in indexes, its id, and its owner's channel. A script that changes something has a deadline as its last
argument. After the deadline it does nothing, because its caller has given up. The clock is the server's, in
milliseconds. If the task's phase or another claim forbids a change, the script reports that and changes nothing. Each
script can be repeated after a lost reply: the second run finds the work done.

A deleted task leaves a record without phase and facts. Scripts do not treat it as a task; it only keeps the id taken.

A record may be damaged, or come from a newer release. Scripts leave such a record as it is, except that its owner can
delete it. No script fails because of one.

On a full server, scripts that free memory (they delete something first) still pass. Scripts that only use memory fail
before they write anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.sealing.formats import TASK_RECORD

GROUP = "workers"
"""The consumer group of every queue."""

DELETED_MS = 60_000
"""How long the id of a deleted task is remembered if no client chose it: as long as a repetition may take."""

SPARE_MS = 60_000
"""How much longer an index may live than the last task in it."""

DELETED_IDS = 10_000
"""How many ids of deleted tasks, chosen by the client, are remembered per owner; further ones count for the quota."""

ALWAYS_STORED_BYTES = 4096
"""A result or an error up to this size is stored even if the owner is over quota. Otherwise the task could not end."""

SETTLED_AT_CREATION = 8
SETTLED_AT_ONCE = 1000
"""How many expired tasks stop counting with each creation, and with each script that finds no room."""

VIEW_FIELDS = (
    *("phase", "generation", "created", "updated", "ended", "expires", "about", "progress"),
    *("message", "open", "capabilities", "questions", "result", "error", "kept", "withdrawn"),
    *("entry", "lost", "segments", "emitted", "asked"),
)
"""The fields of a task that a reader gets."""

BRIEF_FIELDS = (*(name for name in VIEW_FIELDS if name not in {"asked", "questions", "result"}), "failed", "why")
"""The fields of a summary, as lists show it."""

SEALED_FIELDS = ("capabilities", "message", "questions", "asked", "result", "error", "why")
"""The fields that may be large. A summary has some of them."""

PLAIN_FIELDS = tuple(name for name in VIEW_FIELDS if name not in SEALED_FIELDS)
"""The fields that an operator may read. Each is short and not sealed."""

QUICK_BYTES = 8192
"""Up to this size, what is read of a task comes with what is read of others. More is read in turns."""


def quoted(names: Iterable[str]) -> str:
    """Return names as arguments in Lua."""
    return ", ".join(f"'{name}'" for name in names)


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script. `sha` is the name that the server caches it under; a timely one takes a deadline."""

    text: str
    sha: str = field(init=False)
    timely: bool = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
        object.__setattr__(self, "timely", DEADLINE in self.text)


CLOCK = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

IS_LARGE = (
    """
-- Whether fields of a task are too large to be read together with others. Their sizes are known without a copy.
local function is_large(task, ...)
  local size = 0
  for _, name in ipairs({...}) do size = size + redis.call('HSTRLEN', task, name) end
  return size > """
    + str(QUICK_BYTES)
    + """
end
"""
)

LATE = "LATE"
"""The start of the error of a script that arrives after its deadline."""

DEADLINE = (
    CLOCK
    + """
-- The last argument is the time when the caller gives up, on this server's clock. A paused server or the network may
-- delay a script until then. It must not run after its caller has assumed that it never will.
if now >= tonumber(table.remove(ARGV)) then return {err = '"""
    + LATE
    + """ the caller has given up'} end
"""
)
"""The start of every script that changes something."""

_NAMES = (
    IS_LARGE
    + """
local task, queue, segments, owned, requests = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]
local member, id, channel = ARGV[1], ARGV[2], ARGV[3]
local by_phase = {queued = KEYS[5], running = KEYS[6], waiting = KEYS[7], done = KEYS[8], cancelled = KEYS[9]}

-- Let an index live a bit longer than the last task in it, so the next task need not extend its life again.
local function outlive(key, expires)
  if redis.call('PTTL', key) >= expires - now then return false end
  redis.call('PEXPIREAT', key, expires + """
    + str(SPARE_MS)
    + """)
  return true
end

local function move(from, to, expires)
  if from ~= to then
    if from then redis.call('ZREM', by_phase[from], member) end
    redis.call('ZADD', by_phase[to], expires, member)
    outlive(by_phase[to], expires)
  end
end

local function tell(generation)
  redis.call('PUBLISH', channel, (generation or 0) .. ' ' .. id)
end

-- Return a stored number, nil if it is none. The store reads numbers of up to 15 digits.
local function number(text)
  return text and #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or nil
end

local function names_entry(text) return text and string.match(text, '^%d+%-%d+$') end

-- Whether this release may change the record: its format and its phase are known, and its
-- numbers are numbers.
local function readable()
  local facts, phase = unpack(redis.call('HMGET', task, 'about', 'phase'))
  if not facts or not phase or not by_phase[phase] then return false end
  local each = redis.call('HMGET', task, 'generation', 'created', 'updated', 'expires', 'ended', 'kept', 'lost',
    'segments', 'emitted')
  for i, text in ipairs(each) do
    if text and not number(text) or not text and i <= 4 then return false end
  end
  local ok, about = pcall(cjson.decode, facts)
  if not ok or type(about) ~= 'table' then return false end
  return about.v == nil or type(about.v) == 'number' and about.v <= """
    + str(TASK_RECORD.reads)
    + """
end

-- KEYS[12] counts the bytes of sealed values that the owner's tasks use: 't:' and an id → that task, 'total' → all,
-- 'limit' → the limit. Expired tasks count until they are settled. Scripts settle them before they refuse anything.
local sizes = KEYS[12]

local function settle(most)
  local old = redis.call('ZRANGEBYSCORE', owned, '-inf', now, 'LIMIT', 0, most)
  if #old == 0 then return end
  local freed = 0
  for _, each in ipairs(old) do
    freed = freed + (redis.call('HGET', sizes, 't:' .. each) or 0)
    redis.call('HDEL', sizes, 't:' .. each)
  end
  if freed > 0 then redis.call('HINCRBY', sizes, 'total', -freed) end
  redis.call('ZREM', owned, unpack(old))
end

local function has_room(bytes, limit)
  if bytes <= 0 or not limit then return true end
  if (redis.call('HGET', sizes, 'total') or 0) + bytes <= tonumber(limit) then return true end
  settle("""
    + str(SETTLED_AT_ONCE)
    + """)
  return (redis.call('HGET', sizes, 'total') or 0) + bytes <= tonumber(limit)
end

local function limit_of_sizes() return redis.call('HGET', sizes, 'limit') end

-- The sizes live as long as the index of all tasks.
local function own(expires)
  redis.call('ZADD', owned, expires, id)
  if outlive(owned, expires) then outlive(sizes, expires) end
end

local function grow(bytes, expires)
  if bytes == 0 then return end
  redis.call('HINCRBY', sizes, 'total', bytes)
  -- A task that was not counted before comes from an older release, which stored no sizes.
  if redis.call('HINCRBY', sizes, 't:' .. id, bytes) == bytes then outlive(sizes, expires) end
end

-- How long until the first of the owner's tasks expires.
local function first_expiry()
  local first = redis.call('ZRANGEBYSCORE', owned, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[2] and math.ceil(first[2] - now) or 0
end

local function dequeue(entry)
  if not names_entry(entry) then return end
  redis.call('XACK', queue, '"""
    + GROUP
    + """', entry)
  redis.call('XDEL', queue, entry)
end

-- The time and the fields; or only the time, if there is much to read and the reader did not ask for the `whole` task.
local function view(whole)
  if not whole and is_large(task, """
    + quoted(SEALED_FIELDS)
    + """) then return {now} end
  local fields = redis.call('HMGET', task, """
    + quoted(VIEW_FIELDS)
    + """)
  if not fields[1] and not fields["""
    + str(VIEW_FIELDS.index("about") + 1)
    + """] then return false end
  return {now, unpack(fields)}
end
"""
)

_COMMON = DEADLINE + _NAMES

_HELD = """
-- ARGV[4] and ARGV[5] are the generation and the token of the caller's claim. Two claims can have the same generation
-- if the server lost its newest changes in between. The token distinguishes them.
local phase, generation, token, expires, deleted, kept, stored =
  unpack(redis.call('HMGET', task, 'phase', 'generation', 'token', 'expires', 'deleted', 'kept', 'segments'))
local sound = number(expires) and (not kept or number(kept)) and (not stored or number(stored))
local function held(after)
  if sound and generation == ARGV[4] and token == ARGV[5] and (phase == 'running' or phase == after) then return nil end
  if phase == 'cancelled' or deleted then return 'cancelled' end
  return 'lost'
end
"""

_CHANGES = """
-- Return `bytes` plus the bytes that the changes from ARGV[first] on add; nil if the owner has no room for them.
local function weigh(first, bytes)
  local drop = tonumber(ARGV[first])
  for i = first + 1, first + drop do bytes = bytes - redis.call('HSTRLEN', task, ARGV[i]) end
  for i = first + drop + 2, #ARGV, 2 do
    bytes = bytes + #ARGV[i] - redis.call('HSTRLEN', task, ARGV[i - 1])
  end
  return has_room(bytes, limit_of_sizes()) and bytes or nil
end

local function no_room() return {'no room', limit_of_sizes()} end

-- Apply changes. From ARGV[first]: the number of fields to drop, their names, then pairs of field and value.
local function write(first, ...)
  local drop = tonumber(ARGV[first])
  for i = first + 1, first + drop do redis.call('HDEL', task, ARGV[i]) end
  redis.call('HSET', task, ...)
  for i = first + drop + 1, #ARGV, 2 do redis.call('HSET', task, ARGV[i], ARGV[i + 1]) end
end
"""

_CLOSE = """
-- Return the fields that an ended task no longer needs, and their counted bytes.
local parts = {a = true, s = true, n = true}
local singles = {call = true, head = true, cp = true, slot = true, questions = true}
local uncounted = {open = true, asked = true, entry = true, stream = true, stream_ends = true}
local function leftovers()
  local names, bytes = {}, 0
  for _, name in ipairs(redis.call('HKEYS', task)) do
    if singles[name] or parts[string.match(name, '^(%l):')] then
      names[#names + 1] = name
      bytes = bytes + redis.call('HSTRLEN', task, name)
    elseif uncounted[name] then
      names[#names + 1] = name
    end
  end
  return names, bytes
end

-- End the task: keep what a reader needs, drop the rest, and start a retention that counts from the end.
local function close(from, to, generation, names, bytes, ...)
  local entry, kept, expires, emitted = unpack(redis.call('HMGET', task, 'entry', 'kept', 'expires', 'segments'))
  dequeue(entry)
  for i = 1, #names, 1000 do redis.call('HDEL', task, unpack(names, i, math.min(i + 999, #names))) end
  expires = kept and now + tonumber(kept) or tonumber(expires)
  redis.call('HSET', task, 'phase', to, 'updated', now, 'ended', now, 'expires', expires, ...)
  move(from, to, expires)
  grow(bytes, expires)
  if kept then
    own(expires)
    -- Last, because a key whose time is up disappears at once, and a later write would create it again.
    if emitted then redis.call('PEXPIREAT', segments, expires) end
    redis.call('PEXPIREAT', task, expires)
  end
  tell(generation)
end
"""

CREATE = Script(
    _COMMON
    + """
-- Store a task, and queue it unless its fields have a result. 4 quota of tasks, 5 quota of bytes, 6 longest life (ms),
-- 7 retention (ms), 8 'created' or 'ended' (it counts from), 9 the request that it is found by or '', 10 the unsealed
-- facts, with a token that distinguishes a repetition of this creation from another one; then pairs of field and value;
-- last how long (ms) to remember which task the order created, or 0. If not 0, the last key remembers it.
local remembered = tonumber(table.remove(ARGV))
local order = remembered > 0 and KEYS[#KEYS]
local about, created, expires, taken, deleted =
  unpack(redis.call('HMGET', task, 'about', 'created', 'expires', 'phase', 'deleted'))
if about == ARGV[10] then return {'created', created, expires} end
local first = order and redis.call('GET', order)
if first then return {'first', first} end
if taken or deleted or about then return {'taken'} end
local quota = tonumber(ARGV[4])
if redis.call('ZCARD', owned) >= quota and redis.call('ZCOUNT', owned, '(' .. now, '+inf') >= quota then
  return {'full', first_expiry()}
end
local bytes, phase = #ARGV[10], 'queued'
for i = 12, #ARGV, 2 do
  if ARGV[i - 1] ~= 'progress' then bytes = bytes + #ARGV[i] end
  if ARGV[i - 1] == 'result' then phase = 'done' end
end
-- The bytes of the owner's tasks with this one. An earlier task with the same id is gone.
local function total()
  local all, old = unpack(redis.call('HMGET', sizes, 'total', 't:' .. id))
  return (all or 0) - (old or 0) + bytes
end
local kept = total()
if kept > tonumber(ARGV[5]) then
  settle("""
    + str(SETTLED_AT_ONCE)
    + """)
  kept = total()
  if kept > tonumber(ARGV[5]) then return {'no room', first_expiry()} end
end
local longest, retention = tonumber(ARGV[6]), tonumber(ARGV[7])
expires = now + ((ARGV[8] == 'created' or phase == 'done') and retention or longest)
local entry
if phase == 'queued' then
  -- Entries older than any living task can be are dropped.
  entry = redis.call('XADD', queue, 'MINID', '~', math.max(0, now - 2 * longest), '*', 'task', member)
end
redis.call('HSET', task, 'phase', phase, 'generation', 0, 'created', now, 'updated', now, 'expires', expires,
  entry and 'entry' or 'ended', entry or now, 'about', ARGV[10], unpack(ARGV, 11))
if ARGV[8] == 'ended' then redis.call('HSET', task, 'kept', retention) end
redis.call('PEXPIREAT', task, expires)
local new = redis.call('HSET', sizes, 'limit', ARGV[5], 'total', kept, 't:' .. id, bytes)
own(expires)
-- An older release stored no sizes; its tasks may live longer than this one.
if new == 3 then redis.call('PEXPIRE', sizes, redis.call('PTTL', owned)) end
move(nil, phase, expires)
if ARGV[9] ~= '' then
  -- Each creation checks a few requests, so few remain whose task is gone.
  local some = redis.call('HRANDFIELD', requests, 8, 'WITHVALUES')
  for i = 1, #some, 2 do
    if not redis.call('ZSCORE', owned, some[i + 1]) then redis.call('HDEL', requests, some[i]) end
  end
  redis.call('HSET', requests, ARGV[9], id)
  outlive(requests, expires)
end
if order then redis.call('SET', order, id, 'PX', math.max(1, math.min(remembered, expires - now))) end
settle("""
    + str(SETTLED_AT_CREATION)
    + """)
-- Each creation cleans one phase index, which the clock picks.
local index = KEYS[5 + now % 5]
local old = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, """
    + str(5 * SETTLED_AT_CREATION)
    + """)
if #old > 0 then redis.call('ZREM', index, unpack(old)) end
tell(0)
return {'created', now, expires}
"""
)

READ = Script(CLOCK + _NAMES + "return view(ARGV[4] == 'whole')")
"""Return a task. 4 'whole' to get large fields, too."""

CLAIM = Script(
    _COMMON
    + """
-- Take a task off the queue. 4 entry, 5 consumer, 6 a token that distinguishes a repetition of this claim.
-- A task that this release may not change stays as it is.
local phase, generation, entry, token, expires, about =
  unpack(redis.call('HMGET', task, 'phase', 'generation', 'entry', 'token', 'expires', 'about'))
local rests = phase == 'waiting' or phase == 'done' or phase == 'cancelled' or not phase and not about
if entry ~= ARGV[4] and (names_entry(entry) or not entry and rests) then
  dequeue(ARGV[4])
  return {'gone'}
end
local pending = redis.call('XPENDING', queue, '"""
    + GROUP
    + """', ARGV[4], ARGV[4], 1)
if not pending[1] or pending[1][2] ~= ARGV[5] then return {'taken'} end
if entry ~= ARGV[4] or phase ~= 'queued' and phase ~= 'running' or not readable() then
  return {'unreadable', now, redis.call('HGETALL', task)}
end
if token ~= ARGV[6] then
  if phase == 'running' then redis.call('HINCRBY', task, 'lost', 1) end
  generation = generation + 1
  redis.call('HSET', task, 'phase', 'running', 'generation', generation, 'updated', now, 'token', ARGV[6])
  move(phase, 'running', tonumber(expires))
  tell(generation)
end
return {'claimed', now, redis.call('HGETALL', task)}
"""
)

HAND_ON = Script(
    _COMMON
    + """
-- Give back a task that this worker cannot read, so another worker can take it at once. 4 entry, 5 consumer, 6 how long
-- (ms) it has been idle from now on, 7 the token of this worker's claim, which counts as no attempt.
local pending = redis.call('XPENDING', queue, '"""
    + GROUP
    + """', ARGV[4], ARGV[4], 1)
if not pending[1] or pending[1][2] ~= ARGV[5] then return end
local phase, generation, token, expires = unpack(redis.call('HMGET', task, 'phase', 'generation', 'token', 'expires'))
if phase == 'running' and token == ARGV[7] then
  redis.call('HSET', task, 'phase', 'queued')
  move(phase, 'queued', tonumber(expires))
  tell(generation)
end
redis.call('XCLAIM', queue, '"""
    + GROUP
    + """', ARGV[5], 0, ARGV[4], 'IDLE', ARGV[6], 'JUSTID')
"""
)

PUT_BACK = Script(
    _COMMON
    + """
-- Move a task to the end of its queue instead of starting it. 4 entry, 5 consumer.
if redis.call('HGET', task, 'entry') ~= ARGV[4] then
  dequeue(ARGV[4])
  return 'gone'
end
local pending = redis.call('XPENDING', queue, '"""
    + GROUP
    + """', ARGV[4], ARGV[4], 1)
if not pending[1] or pending[1][2] ~= ARGV[5] then return 'taken' end
dequeue(ARGV[4])
redis.call('HSET', task, 'entry', redis.call('XADD', queue, '*', 'task', member))
return 'put back'
"""
)

HEARTBEAT = Script(
    CLOCK
    + _NAMES
    + _HELD
    + """
-- Extend a lease. 6 entry, 7 consumer. No deadline: after the server was paused, a late heartbeat still keeps the task
-- with the worker that runs it.
if not phase then dequeue(ARGV[6]) end
local refusal = held('running')
if refusal then return refusal end
local pending = redis.call('XPENDING', queue, '"""
    + GROUP
    + """', ARGV[6], ARGV[6], 1)
if not pending[1] or pending[1][2] ~= ARGV[7] then return 'lost' end
redis.call('XCLAIM', queue, '"""
    + GROUP
    + """', ARGV[7], 0, ARGV[6], 'JUSTID')
return 'ok'
"""
)

KEEP = Script(
    _COMMON
    + _HELD
    + _CHANGES
    + """
-- Add to the journal of a running task. 6 progress or '', then changes.
local refusal = held('running')
if refusal then return refusal end
local bytes = weigh(7, 0)
if not bytes then return no_room() end
if ARGV[6] ~= '' then
  redis.call('HSET', task, 'progress', ARGV[6], 'updated', now)
  tell(generation)
end
write(7, 'generation', generation)
grow(bytes, tonumber(expires))
return 'ok'
"""
)

EMIT = Script(
    _COMMON
    + _HELD
    + """
-- Append a segment. 6 its number, 7 the sealed block, 8 the size of all segments including it.
local refusal = held('running')
if refusal then return refusal end
local last, new = tonumber(stored or 0), tonumber(ARGV[6])
if new <= last then return 'ok' end
if new > last + 1 then return 'gap' end
if not has_room(#ARGV[7], limit_of_sizes()) then return {'no room', limit_of_sizes()} end
grow(#ARGV[7], tonumber(expires))
redis.call('XADD', segments, ARGV[6] .. '-0', 'block', ARGV[7])
redis.call('PEXPIREAT', segments, expires)
redis.call('HSET', task, 'segments', new, 'emitted', ARGV[8], 'updated', now)
tell(generation)
return 'ok'
"""
)

WAIT = Script(
    _COMMON
    + _HELD
    + _CHANGES
    + """
-- Wait for the client. 6 entry, 7 open wire keys, 8 how often each key was asked, 9 the sealed questions, then changes.
local refusal = held('waiting')
if refusal then return refusal end
if phase == 'waiting' then return 'ok' end
local bytes = weigh(10, #ARGV[9] - redis.call('HSTRLEN', task, 'questions'))
if not bytes then return no_room() end
dequeue(ARGV[6])
redis.call('HDEL', task, 'entry')
write(10, 'phase', 'waiting', 'updated', now, 'open', ARGV[7], 'asked', ARGV[8], 'questions', ARGV[9])
grow(bytes, tonumber(expires))
move(phase, 'waiting', tonumber(expires))
tell(generation)
return 'ok'
"""
)

ANSWER = Script(
    _COMMON
    + """
-- Record answers to open questions; the last one queues the task. From 4: pairs of wire key and sealed answer.
local phase, generation, open, expires = unpack(redis.call('HMGET', task, 'phase', 'generation', 'open', 'expires'))
if phase ~= 'waiting' or not readable() then return view() end
local answered = {}
for i = 4, #ARGV, 2 do answered[ARGV[i]] = ARGV[i + 1] end
local known, asked = pcall(cjson.decode, open)
if not known or type(asked) ~= 'table' then return view() end
local left, recorded, bytes = {}, {}, 0
for _, key in ipairs(asked) do
  if answered[key] then
    recorded[#recorded + 1] = key
    bytes = bytes + #answered[key]
  else
    left[#left + 1] = key
  end
end
if #recorded == 0 then return view() end
if not has_room(bytes, limit_of_sizes()) then return {'no room', first_expiry(), limit_of_sizes()} end
for _, key in ipairs(recorded) do redis.call('HSET', task, 'n:' .. key, answered[key]) end
grow(bytes, tonumber(expires))
if #left > 0 then
  redis.call('HSET', task, 'open', cjson.encode(left), 'updated', now)
else
  local entry = redis.call('XADD', queue, '*', 'task', member)
  redis.call('HSET', task, 'phase', 'queued', 'updated', now, 'entry', entry)
  redis.call('HDEL', task, 'open')
  move(phase, 'queued', tonumber(expires))
end
tell(generation)
return view()
"""
)

FINISH = Script(
    _COMMON
    + _HELD
    + _CLOSE
    + """
-- End a running task with its outcome. From 6: 'result' or 'error', its sealed value, then pairs of more fields.
local refusal = held('done')
if refusal then return refusal end
if phase == 'done' then return 'ok' end
local names, freed = leftovers()
local bytes = -freed
for i = 7, #ARGV, 2 do bytes = bytes + #ARGV[i] end
if #ARGV[7] > """
    + str(ALWAYS_STORED_BYTES)
    + """ and not has_room(bytes, limit_of_sizes()) then return {'no room', limit_of_sizes()} end
close(phase, 'done', generation, names, bytes, unpack(ARGV, 6))
return 'ok'
"""
)

RELEASE = Script(
    _COMMON
    + _HELD
    + _CHANGES
    + """
-- Hand a running task back. 6 entry, then changes.
local refusal = held('queued')
if refusal then return refusal end
if phase == 'queued' then return 'ok' end
local bytes = weigh(7, 0)
if not bytes then return no_room() end
dequeue(ARGV[6])
local entry = redis.call('XADD', queue, '*', 'task', member)
write(7, 'phase', 'queued', 'updated', now, 'entry', entry)
grow(bytes, tonumber(expires))
move(phase, 'queued', tonumber(expires))
tell(generation)
return 'ok'
"""
)

CANCEL = Script(
    _COMMON
    + _CLOSE
    + """
-- Cancel a task at its owner's request. 4 the channel that workers listen to, 5 'withdrawn' if the request that created
-- the task was cancelled, else ''.
local phase, generation = unpack(redis.call('HMGET', task, 'phase', 'generation'))
if (phase == 'queued' or phase == 'running' or phase == 'waiting') and readable() then
  local names, freed = leftovers()
  if ARGV[5] == 'withdrawn' then redis.call('HSET', task, 'withdrawn', 1) end
  close(phase, 'cancelled', generation, names, -freed)
  if phase == 'running' then redis.call('PUBLISH', ARGV[4], member) end
end
return view()
"""
)

DELETE = Script(
    _COMMON
    + """
-- Delete a task at its owner's request. 4 the channel that workers listen to, 5 a token that distinguishes a repetition
-- of this deletion, 6 how long (ms) to remember the id; '' for the time the task would have lived. 7 how many ids can
-- be remembered like that before they count for the quota.
local phase, generation, entry, kept, ended, expires, deleted, about =
  unpack(redis.call('HMGET', task, 'phase', 'generation', 'entry', 'kept', 'ended', 'expires', 'deleted', 'about'))
if deleted == ARGV[5] then return 'deleted' end
if not phase and not about then return 'unknown' end
local remembered = number(kept) and not ended and now + number(kept) or number(expires)
-- The record says no more when it expires, but the server knows.
  or now + math.max(0, redis.call('PTTL', task))
redis.call('ZREM', owned, id)
local bytes = redis.call('HGET', sizes, 't:' .. id)
if bytes then
  redis.call('HDEL', sizes, 't:' .. id)
  redis.call('HINCRBY', sizes, 'total', -bytes)
end
if ARGV[6] ~= '' then
  remembered = math.min(remembered, now + tonumber(ARGV[6]))
else
  local ids = KEYS[11]
  redis.call('ZREMRANGEBYSCORE', ids, '-inf', now)
  redis.call('ZADD', ids, remembered, id)
  outlive(ids, remembered)
  if redis.call('ZCARD', ids) > tonumber(ARGV[7]) then
    own(remembered)
  end
end
for _, index in pairs(by_phase) do redis.call('ZREM', index, member) end
dequeue(entry)
redis.call('UNLINK', task, segments)
redis.call('HSET', task, 'deleted', ARGV[5])
redis.call('PEXPIREAT', task, remembered)
tell(generation)
if phase == 'running' then redis.call('PUBLISH', ARGV[4], member) end
return 'deleted'
"""
)

DELIVER = Script(
    _COMMON
    + """
-- Reserve the delivery of a task's questions for a stream. 4 the stream, 5 how long (ms).
local phase, generation, stream, ends =
  unpack(redis.call('HMGET', task, 'phase', 'generation', 'stream', 'stream_ends'))
if not readable() or phase == 'done' or phase == 'cancelled' then return 0 end
if stream and stream ~= ARGV[4] and (number(ends) or 0) > now then return 0 end
redis.call('HSET', task, 'stream', ARGV[4], 'stream_ends', now + tonumber(ARGV[5]))
if ARGV[5] == '0' then tell(generation) end
return 1
"""
)
