"""Recordings: what a call has learned at the start of each leg, stored as JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec

from gateway.authoring.served import Served
from gateway.engine.journal import Checkpoint, Journal, MalformedJournal
from gateway.engine.leg import Detaching
from gateway.engine.outcomes import Completed, NeedsInput
from gateway.engine.questions import Answer, Question
from gateway.engine.values import json_value
from gateway.errors import AuthoringError
from gateway.testing.answers import Answers
from gateway.testing.calls import Taken
from gateway.testing.mistakes import RunError, check_arguments, check_served
from gateway.testing.results import Ended
from gateway.testing.running import Options, run_call, without_loop

__tracebackhide__ = True  # pytest shows the test and the author's code

FORMAT: Final = 1
"""The format of the file. Raise it when an older release could not read it."""

SEED: Final = "recording"
"""Makes the random values of two recordings of one call the same."""


@dataclass(frozen=True, kw_only=True)
class RecordedQuestion:
    """A question that was asked: the digest of its identity, in hex, and its request."""

    digest: str
    method: str
    params: dict[str, Any]

    @classmethod
    def of(cls, question: Question) -> RecordedQuestion:
        """Return what a recording keeps of a question."""
        return cls(digest=question.digest.hex(), method=question.method, params=copy.deepcopy(dict(question.params)))


@dataclass(frozen=True, kw_only=True)
class RecordedLeg:
    """A leg: what it started from, and what it did.

    Attributes:
        journal: the journal at its start, in its stored form.
        answers: the answers that came with its request, by key.
        detaching: what `ctx.detach()` did.
        lacking: the capabilities that the tool needed and the client did not have.
        reached: the keys of the questions and steps that it came to, in order.
        asked: the questions that it ended with, by key.
        steps: the result of each step so far, by key.
        raised: the keys of the steps that raised.
        refused: how many answers to each question did not fit so far.
        checkpoint: the last checkpoint in its stored form, or None.
        ended: how it ended.
    """

    journal: dict[str, Any]
    answers: dict[str, Answer]
    detaching: str
    lacking: list[str]
    reached: list[str]
    asked: dict[str, RecordedQuestion]
    steps: dict[str, Any]
    raised: list[str]
    refused: dict[str, int]
    checkpoint: dict[str, Any] | None
    ended: Ended

    @classmethod
    def of(cls, taken: Taken) -> RecordedLeg:
        """Return what a recording keeps of a leg."""
        after, outcome = taken.leg.journal, taken.outcome
        questions = outcome.questions if isinstance(outcome, NeedsInput) else {}
        ended: Ended = "asked" if questions else "returned" if isinstance(outcome, Completed) else "detached"
        return cls(
            journal=taken.before,
            answers=copy.deepcopy(taken.fresh),
            detaching=taken.detaching.value,
            lacking=sorted(taken.lacking),
            reached=list(taken.leg.reached),
            asked={key: RecordedQuestion.of(question) for key, question in questions.items()},
            steps=copy.deepcopy(after.steps),
            raised=sorted(taken.raised),
            refused=dict(after.refused),
            checkpoint=None if after.checkpoint is None else copy.deepcopy(after.checkpoint.to_map()),
            ended=ended,
        )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A call that a test has recorded, for `replay`.

    It holds the arguments, the answers of the test, and the results of the tool's steps. It does not name the caller.

    Attributes:
        tool: the name of the tool.
        version: the tool's version.
        arguments: of the call.
        legs: in order.
    """

    tool: str
    version: int
    arguments: dict[str, Any]
    legs: list[RecordedLeg]

    def to_json(self) -> str:
        """Return the recording as JSON, on many lines, so that a change of it can be reviewed."""
        stored = {"format": FORMAT, **asdict(self)}
        for leg in stored["legs"]:
            leg["journal"] = _without_bytes(leg["journal"])
        return json.dumps(stored, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Recording:
        """Read a recording.

        Raises:
            RunError: it is not a recording, or a newer release has made it.
        """
        try:
            stored = json.loads(text)
            if stored.pop("format") != FORMAT:
                raise RunError("this release cannot read the recording; record the call again")
            for leg in stored["legs"]:
                leg["journal"] = _with_bytes(leg["journal"])
            recording = msgspec.convert(stored, cls)
            _check_legs(recording.legs)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MalformedJournal) as error:
            raise RunError(
                f"this is not a recording ({type(error).__name__}: {error}); record the call again"
            ) from None
        return recording

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, for the repository."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a file that `save` wrote.

        Raises:
            OSError: the file cannot be read.
            RunError: it is not a recording, or a newer release has made it.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise RunError(f"{path}: this is not a recording, as it is not UTF-8; record the call again") from None
        except RunError as error:
            raise RunError(f"{path}: {error}") from None


def record(
    tool: Served,
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Recording:
    """Run a call as `run` does, and return what it has learned at each leg.

    Store it with `save`, and let `replay` compare it with later versions of the tool. The arguments are those of
    `run`. Without `seed`, the random values are the same each time.

    Raises:
        Exception: see `run`. A call that raises cannot be recorded.
    """
    check_served(tool, "record")
    return without_loop(_record("record", tool, args, answers, options), "record")


async def record_async(
    tool: Served,
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Recording:
    """Do the same as `record`, inside a running event loop."""
    return await _record("record_async", tool, args, answers, options)


async def _record(
    called: str, served: Served, arguments: Mapping[str, Any] | None, answers: Answers | None, options: Options
) -> Recording:
    given = check_arguments(arguments, called)
    try:
        json_value(dict(given), "the arguments")
    except AuthoringError as error:
        raise RunError(f"{error}; pass what a client sends") from None
    legs: list[RecordedLeg] = []
    seeded: Options = {"seed": SEED, **options}
    await run_call(called, served, given, answers, seeded, taken=lambda taken: legs.append(RecordedLeg.of(taken)))
    return Recording(tool=served.name, version=served.version, arguments=copy.deepcopy(dict(given)), legs=legs)


def _check_legs(legs: list[RecordedLeg]) -> None:
    """Check what the types of the fields do not.

    Raises:
        ValueError, KeyError, TypeError, MalformedJournal: a part of a leg is missing or cannot be read.
    """
    if not legs:
        raise ValueError("it has no legs")
    for leg in legs:
        Detaching(leg.detaching)
        Journal.from_map(leg.journal)
        if leg.checkpoint is not None:
            Checkpoint.from_map(leg.checkpoint)


def _without_bytes(journal: Mapping[str, Any]) -> dict[str, Any]:
    """Return a journal at rest for JSON: its seed and its digests in hex."""
    stored = {**journal, "seed": journal["seed"].hex()}
    if "pending" in journal:
        stored["pending"] = {key: digest.hex() for key, digest in journal["pending"].items()}
    if "answers" in journal:
        stored["answers"] = {
            key: [[digest.hex(), answer] for digest, answer in pairs] for key, pairs in journal["answers"].items()
        }
    return stored


def _with_bytes(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the journal at rest for the result of `_without_bytes`."""
    journal = {**stored, "seed": bytes.fromhex(stored["seed"])}
    if "pending" in stored:
        journal["pending"] = {key: bytes.fromhex(digest) for key, digest in stored["pending"].items()}
    if "answers" in stored:
        journal["answers"] = {
            key: [[bytes.fromhex(digest), answer] for digest, answer in pairs]
            for key, pairs in stored["answers"].items()
        }
    return journal
