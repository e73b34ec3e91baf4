"""Replay a recorded call with new code, and report what the new code would ask or do differently.

A recording has the journal at the start of each leg. Each one is a call in progress, as a rollout meets it: new code
continues it. Steps never run; a recorded step returns its recorded result.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.lifespans import open_all
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.driver import run_leg
from gateway.engine.journal import Checkpoint, Journal
from gateway.engine.leg import Detaching, Leg
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Completed, Detached, Failed, NeedsInput, NotKept, Outcome
from gateway.engine.questions import InvalidAnswer, Question
from gateway.engine.values import copy_json, json_value
from gateway.errors import AskError, GatewayError
from gateway.sealing.packing import pack, unpack
from gateway.sealing.principal import Principal
from gateway.testing.calls import MemoryKeeper, Setting, lifespans_of, target_of
from gateway.testing.mistakes import RunError, check_served
from gateway.testing.options import check_values
from gateway.testing.recordings import RecordedQuestion, Recording
from gateway.testing.running import without_loop

__tracebackhide__ = True  # pytest shows the test and the author's code

Kind: TypeAlias = Literal[
    "tool renamed",
    "arguments no longer valid",
    "question new",
    "question changed",
    "question gone",
    "answer no longer fits",
    "step new",
    "step renamed",
    "step gone",
    "order changed",
    "checkpoint dropped",
    "migration fails",
    "raises",
    "ends differently",
]

_CANNOT_RUN: Final = frozenset({"arguments no longer valid", "migration fails"})
"""With one of these, running the legs would only repeat the message."""

_ENDINGS: Final = {"returned": "return", "asked": "ask", "detached": "become a task"}


@dataclass(frozen=True)
class Difference:
    """One thing that new code does differently in a call that is in progress.

    Attributes:
        kind: what differs.
        key: of the question or step, or None.
        leg: the first leg in which it differs, from 1; 0 if it concerns the whole call.
        message: what would happen, and how to avoid it.
    """

    kind: Kind
    key: str | None
    leg: int
    message: str

    def __str__(self) -> str:
        return f"leg {self.leg}: {self.message}" if self.leg else self.message


class ReplayDiffers(GatewayError):
    """New code would not continue a recorded call as the recorded code did.

    Attributes:
        differences: each one once, in the order of the legs.
    """

    def __init__(self, recording: Recording, differences: list[Difference]) -> None:
        self.differences = differences
        lines = "".join(f"\n- {difference}" for difference in differences)
        super().__init__(f"calls of {recording.tool!r} that are in progress would not continue as recorded:{lines}")


def replay(
    tool: Served,
    recording: Recording,
    *,
    principal: Principal | None = None,
    tokens: Mapping[str, str] | None = None,
    limit_seconds: float | None = 60,
) -> None:
    """Check that a tool continues a recorded call as the recorded code did.

    For each recorded leg, it runs the function from the journal that the leg started from. Steps do not run; other
    code of the function does, as in any leg. A step that raised in the recording ends the check of its leg.

    Args:
        tool: the tool as it is now.
        recording: made by `record`.
        principal: the caller, if the tool needs one. The recording has none.
        tokens: the tokens that `ctx.exchange_token` returns, by audience. The recording has none.
        limit_seconds: the time limit of each leg.

    Raises:
        ReplayDiffers: something differs. The message tells what, and how to avoid it.
        RunError: the arguments of this function are wrong.
    """
    check_served(tool, "replay")
    setting = _setting(principal=principal, tokens=tokens, limit_seconds=limit_seconds)
    without_loop(_replay("replay", tool, recording, setting), "replay")


async def replay_async(
    tool: Served,
    recording: Recording,
    *,
    principal: Principal | None = None,
    tokens: Mapping[str, str] | None = None,
    limit_seconds: float | None = 60,
) -> None:
    """Do the same as `replay`, inside a running event loop."""
    setting = _setting(principal=principal, tokens=tokens, limit_seconds=limit_seconds)
    await _replay("replay_async", tool, recording, setting)


def _setting(**options: Any) -> Setting:
    check_values(options)
    return Setting(**options)


async def _replay(called: str, served: Any, recording: Any, setting: Setting) -> None:
    check_served(served, called)
    if not isinstance(recording, Recording):
        raise RunError(f"{called}() takes a recording; load one from its file with Recording.load(path)")
    found: dict[tuple[Kind, str | None], Difference] = {}
    for difference in _of_the_call(served, recording):
        found.setdefault((difference.kind, difference.key), difference)
    host = AsyncioHost(setting.limit_seconds, "test")
    try:
        async with open_all(lifespans_of(served)):
            if not any(kind in _CANNOT_RUN for kind, _key in found):
                for number in range(1, len(recording.legs) + 1):
                    for difference in await _of_a_leg(served, recording, number, host, setting):
                        found.setdefault((difference.kind, difference.key), difference)
    finally:
        host.close()
    if found:
        raise ReplayDiffers(recording, list(found.values()))


def _of_the_call(served: Served, recording: Recording) -> Iterator[Difference]:
    """Yield what differs without running anything."""
    if served.name != recording.tool:
        yield Difference(
            "tool renamed",
            None,
            0,
            f"the tool is called {served.name!r}, and calls in progress ask for {recording.tool!r}. Keep the name.",
        )
    try:
        served.bind(recording.arguments, None)
    except InvalidArguments as error:
        yield Difference(
            "arguments no longer valid",
            None,
            0,
            f"the recorded arguments are not valid any more: {error}. Keep old arguments valid, with defaults.",
        )
    for number, leg in enumerate(recording.legs, start=1):
        may_detach = _detaching(served, Detaching(leg.detaching)) is Detaching.POSSIBLE
        if number > 1 and may_detach and isinstance(served, Tool) and served.starts_as_task:
            yield Difference(
                "ends differently",
                None,
                number,
                f"the call would become a task before the leg, because {served} starts as a task. Keep its `start`.",
            )
        for stored in (leg.journal.get("checkpoint"), leg.checkpoint):
            if stored is not None:
                yield from _of_a_checkpoint(served, Checkpoint.from_map(stored), number)


def _of_a_checkpoint(served: Served, checkpoint: Checkpoint, leg: int) -> Iterator[Difference]:
    version, value = checkpoint.version, copy_json(checkpoint.value)
    while version < served.version and version in served.migrations:
        following, migrate = served.migrations[version]
        try:
            value = json_value(migrate(value), "the migrated checkpoint")
        except Exception as error:  # noqa: BLE001 - an author's function may raise anything
            problem = f"the migration from version {version} to {following} fails: {type(error).__name__}: {error}"
            yield Difference("migration fails", None, leg, f"{problem}. Make it accept the recorded checkpoint.")
            return
        version = following
    if version != served.version:
        name = getattr(served, "__name__", served.name)
        fix = (
            f"Add a migration: @{name}.migrate(from_={version}, to={served.version})"
            if version < served.version
            else f"Raise the version of the tool to {version} or more"
        )
        yield Difference(
            "checkpoint dropped",
            None,
            leg,
            f"the checkpoint of version {checkpoint.version} would be dropped, and the work would start again. {fix}.",
        )


async def _of_a_leg(
    served: Served, recording: Recording, number: int, host: AsyncioHost, setting: Setting
) -> list[Difference]:
    """Run a leg from its start, and again from the checkpoint that it wrote, as after a crash."""
    found = await _Replayed(served, recording, number, host).differences(setting)
    recorded = recording.legs[number - 1]
    if recorded.checkpoint is not None and recorded.checkpoint != recorded.journal.get("checkpoint"):
        resumed = _Replayed(served, recording, number, host, Checkpoint.from_map(recorded.checkpoint))
        found += [difference for difference in await resumed.differences(setting) if difference.kind == "raises"]
    return found


class _Replayed:
    """One recorded leg, which new code runs again.

    Args:
        served: the new code.
        recording: of the call.
        number: of the leg, from 1.
        host: runs the leg.
        checkpoint: replaces the one that the leg started from.
    """

    def __init__(
        self,
        served: Served,
        recording: Recording,
        number: int,
        host: AsyncioHost,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._served = served
        self._recording = recording
        self._number = number
        self._host = host
        self._recorded = recording.legs[number - 1]
        self._unknown_step: str | None = None
        self._detaching = _detaching(served, Detaching(self._recorded.detaching))
        self._leg = self._begun(checkpoint)

    def _begun(self, checkpoint: Checkpoint | None) -> Leg:
        recorded = self._recorded
        rest = unpack(pack(recorded.journal))
        journal = Journal.from_map(rest)
        journal.steps = copy.deepcopy(recorded.steps)
        journal.checkpoint = checkpoint or journal.checkpoint
        detaching = self._detaching
        return Leg(
            journal,
            copy.deepcopy(recorded.answers),
            self._host,
            LegPolicy.strict(),
            supports=lambda path: ".".join(path) not in recorded.lacking,
            version=self._served.version,
            migrations=self._served.migrations,
            declared=self._served.asks,
            keeper=MemoryKeeper(rest, self._host) if detaching is Detaching.DONE else None,
            detaching=detaching,
            stepping=self._refuse_step,
        )

    async def _refuse_step(self, key: str, running: Awaitable[Any]) -> Any:
        """End the leg instead of running a step that has no recorded result."""
        self._unknown_step = key
        with contextlib.suppress(AttributeError):  # not every awaitable has to be closed
            running.close()  # type: ignore[attr-defined]  # see above
        self._leg.stop(NotKept(RunError(f"step {key!r} would run")))

    async def differences(self, setting: Setting) -> list[Difference]:
        """Run the leg, and return what differs from the recording."""
        bound = self._served.bind(
            copy.deepcopy(self._recording.arguments), setting.principal, exchange=setting.exchange
        )
        outcome = await run_leg(bound, self._leg)
        may_detach = self._detaching is Detaching.POSSIBLE and self._recorded.ended == "detached"
        if may_detach and isinstance(outcome, NeedsInput):
            outcome = Detached()  # its state may have been too large; the next leg compares the questions
        found = [*self._of_the_end(outcome)]
        if not found and self._unknown_step is None:
            found = [*self._of_the_result(outcome), *self._of_the_order(outcome)]
        return found

    def _of_the_end(self, outcome: Outcome) -> Iterator[Difference]:
        if isinstance(outcome, NotKept):
            yield from self._of_a_step(self._unknown_step or "")
        elif isinstance(outcome, Failed):
            yield self._raises(outcome.error)
        elif isinstance(outcome, NeedsInput):
            for key, question in outcome.questions.items():
                yield from self._of_a_question(key, question)

    def _of_the_result(self, outcome: Outcome) -> Iterator[Difference]:
        """Make the result of a leg that returned."""
        if isinstance(outcome, Completed):
            target = target_of(self._served, self._recording.arguments)
            try:
                self._served.whole_result(outcome.value, target, self._leg.journal)
            except Exception as error:  # noqa: BLE001 - the value is the author's, and so may be its type
                yield self._raises(error)

    def _raises(self, error: Exception) -> Difference:
        told = f"the tool raises {type(error).__name__}: {str(error).rstrip('.')}."
        return self._difference("raises", None, f"{told} With the recorded values it must not fail.")

    def _of_a_step(self, key: str) -> Iterator[Difference]:
        recorded, reached = self._recorded, list(self._leg.reached)
        if key in recorded.raised:
            return
        if key in self._recording.legs[-1].steps:
            yield self._difference(
                "order changed", key, f"step {key!r} would run earlier, before it was recorded. Keep the order."
            )
            return
        position = reached.index(key)
        before = recorded.reached[position] if position < len(recorded.reached) else None
        if before in recorded.steps and before not in reached:
            yield self._difference(
                "step renamed",
                key,
                f"step {before!r} is now {key!r}, and would run again. Keep the key {before!r}.",
            )
        else:
            yield self._difference(
                "step new", key, f"step {key!r} is new, and would run. If it replaces another step, keep that key."
            )

    def _of_a_question(self, key: str, question: Question) -> Iterator[Difference]:
        recorded = self._recorded
        if self._leg.journal.refused.get(key, 0) > recorded.refused.get(key, 0):
            reason = f" ({self._reason(key, question)})"
            yield self._difference(
                "answer no longer fits",
                key,
                f"the recorded answer to {key!r} does not fit any more{reason}, and the question would be asked again. "
                "Accept old answers, or use a new key.",
            )
            return
        earlier = _last_asked(self._recording, key)
        if earlier is None:
            yield self._difference("question new", key, f"question {key!r} is new, and would be asked.")
        elif earlier.digest != question.digest.hex():
            what = _changes(earlier.params, question.params)
            yield self._difference(
                "question changed",
                key,
                f"question {key!r} has another form{what}, and would be asked again. Keep the form, or expect that.",
            )
        elif key not in recorded.asked:
            yield self._difference(
                "order changed", key, f"question {key!r} would be asked earlier or again. Keep the order."
            )

    def _reason(self, key: str, question: Question) -> str:
        answers = [*self._recorded.answers.items(), *_answers_in(self._recorded.journal)]
        for answered, answer in answers:
            if answered == key:
                try:
                    question.read(answer)
                except InvalidAnswer as invalid:
                    return str(invalid)
                except AskError:
                    continue
        return "its kind differs"

    def _of_the_order(self, outcome: Outcome) -> Iterator[Difference]:
        """Yield which recorded keys are gone or in another order, after a leg that reached its recorded end."""
        recorded = self._recorded
        ended = _ended(outcome)
        ends_differently = self._difference(
            "ends differently", None, f"the leg would {_ENDINGS[ended]}, and did {_ENDINGS[recorded.ended]}."
        )
        if ended == "detached" != recorded.ended:  # the rest is yet to come, in the task
            yield ends_differently
            return
        asked = outcome.questions if isinstance(outcome, NeedsInput) else {}
        reached = list(dict.fromkeys([*self._leg.reached, *asked]))
        expected = list(dict.fromkeys([*recorded.reached, *recorded.asked]))
        gone = [key for key in expected if key not in reached]
        yield from map(self._gone, gone)
        kept = [key for key in expected if key in reached]
        now = [key for key in reached if key in kept]
        if self._without_order_of_steps(now) != self._without_order_of_steps(kept):
            changed = f"the order was {', '.join(kept)}, and is now {', '.join(now)}"
            yield self._difference("order changed", None, f"{changed}. Keep the order.")
        if ended != recorded.ended and not gone:
            yield ends_differently

    def _gone(self, key: str) -> Difference:
        if key in self._recorded.steps or key in self._recorded.raised:
            return self._difference(
                "step gone", key, f"step {key!r} is gone, and its recorded result is no longer used."
            )
        return self._difference("question gone", key, f"question {key!r} is gone, and would not be asked.")

    def _without_order_of_steps(self, keys: list[str]) -> list[set[str]]:
        """Split keys at the questions. Steps between two questions may run in parallel, and in any order."""
        parts: list[set[str]] = [set()]
        for key in keys:
            if key in self._recorded.steps or key in self._recorded.raised:
                parts[-1].add(key)
            else:
                parts += [{key}, set()]
        return parts

    def _difference(self, kind: Kind, key: str | None, message: str) -> Difference:
        return Difference(kind, key, self._number, message)


def _detaching(served: Served, recorded: Detaching) -> Detaching:
    """Return what `detach` does in a leg of new code. If the recording does not show it, the client supports tasks."""
    if recorded is Detaching.DONE:
        return recorded
    if not isinstance(served, Tool) or served.task == "forbidden":
        return Detaching.FORBIDDEN
    return Detaching.POSSIBLE if recorded is Detaching.FORBIDDEN else recorded


def _ended(outcome: Outcome) -> str:
    if isinstance(outcome, Completed):
        return "returned"
    return "detached" if isinstance(outcome, Detached) else "asked"


def _last_asked(recording: Recording, key: str) -> RecordedQuestion | None:
    """Return the last question that was recorded under a key, or None."""
    asked = [leg.asked[key] for leg in recording.legs if key in leg.asked]
    return asked[-1] if asked else None


def _answers_in(journal: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the answers of a journal at rest with their keys."""
    for key, pairs in journal.get("answers", {}).items():
        for _digest, answer in pairs:
            yield key, answer


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return which fields of a form differ, as a remark in parentheses, or nothing if it is not a form."""
    old, new = (params.get("requestedSchema", {}).get("properties", {}) for params in (before, now))
    parts = [
        ("new", [name for name in new if name not in old]),
        ("gone", [name for name in old if name not in new]),
        ("changed", [name for name in new if name in old and new[name] != old[name]]),
    ]
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    return f" ({told})" if told else ""
