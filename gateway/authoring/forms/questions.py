"""The questions that an author can ask, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, TypeAlias, cast, overload

import msgspec
from pydantic import BaseModel
from typing_extensions import TypeForm, TypeVar

from gateway.authoring.forms.misfit_texts import misfit_of_schema
from gateway.authoring.forms.reading import Choices, Reader, SeveralChoices, form_by_digest, form_of, form_of_class
from gateway.authoring.types.model_validators import stopping_validator
from gateway.engine.capabilities import ELICITATION_FORM, CapabilityPath, of_sampling
from gateway.engine.questions import ELICIT, ROOTS, SAMPLE, Answer, InvalidAnswer, Question, question_digest
from gateway.engine.values import copy_json, json_value
from gateway.errors import AuthoringError, Declined, Dismissed, Refused
from gateway.json_schema.validation import SchemaValidator
from gateway.protocol.fields import without_nulls
from gateway.protocol.web_urls import web_url_problem

T = TypeVar("T", default=Any)
V = TypeVar("V", default=dict[str, Any])
D = TypeVar("D", default=Never)
D2 = TypeVar("D2")

Accepted: TypeAlias = Literal["accept"]
"""The value of a question that sends the user to a URL: the user agreed to go there."""


_Request: TypeAlias = tuple[str, dict[str, Any], tuple[CapabilityPath, ...]]
"""Method and params of a question, and the capabilities that it needs."""

_FORM: Final = (ELICITATION_FORM,)
_URL: Final = (("elicitation", "url"),)
_NO_OPTIONS: Final[Mapping[str, str]] = {
    "messages": "the parameter `messages`",
    "maxTokens": "the parameter `max_tokens`",
    "systemPrompt": "the parameter `system_prompt`",
    "tools": "the parameter `tools`",
    "task": "a task of your own; clients are not asked for theirs",
}
"""The params of `sampling/createMessage` that `Sample.options` must not have → what to use."""


class _Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Means that no default was given, because None is a valid default."""

_NO_DEFAULT: Final[Never] = cast("Never", MISSING)
"""`MISSING` for the dataclasses below: without a default, a type checker leaves `D` out of the type of the value."""


class Ask(Generic[T]):
    """A question without its key; `T` is the type of its value, or of its default. Pass several to `Context.ask`."""

    default: Any = MISSING

    def question(self, key: str) -> Question:
        """Return the engine's form of this question under the author's key."""
        method, params, capabilities = self._request()
        return Question(
            method=method,
            params=params,
            capabilities=capabilities,
            digest=question_digest(method, params),
            read=lambda answer: self._read(key, answer),
            problem=self._problem(),
        )

    def _request(self) -> _Request:
        raise NotImplementedError

    def _problem(self) -> str:
        """Return why no client may be asked this, as the end of a sentence that begins with the question; or ""."""
        return ""

    def _value(self, _result: Mapping[str, Any], /) -> Any:
        raise NotImplementedError

    def _read(self, key: str, answer: Answer) -> Any:
        if "error" in answer:
            error = answer["error"]
            message = error.get("message", "") if isinstance(error, Mapping) else ""
            return self._default_or(Refused(key, str(message)))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise InvalidAnswer
        action = result.get("action") if isinstance(self, _Elicitation) else "accept"
        if action == "decline":
            return self._default_or(Declined(key))
        if action == "cancel":
            return self._default_or(Dismissed(key))
        if action != "accept":
            raise InvalidAnswer
        return self._value(result)

    def _default_or(self, error: Exception) -> Any:
        if self.default is MISSING:
            raise error
        return self.default


class InputRequired:
    """Return this instead of a value to ask questions; the function then runs again with the answers.

    This is the return style, which also works in functions without `async`. Read the answers with
    `ctx.answers.get(key)`.

    Args:
        questions: the questions by key. If a key is an identifier, you can pass its question as a keyword.

    Raises:
        AuthoringError: there is no question.
    """

    def __init__(self, questions: Mapping[str, Ask[Any]] | None = None, /, **more: Ask[Any]) -> None:
        self.questions: dict[str, Ask[Any]] = {**(questions or {}), **more}
        if not self.questions:
            raise AuthoringError("InputRequired needs at least one question")


class _Elicitation(Ask[T]):
    """A question whose result has an `action`."""


@dataclass(frozen=True)
class Elicit(_Elicitation[V | D], Generic[V, D]):
    """Ask the user to fill in a form.

    Args:
        message: the text that the user reads.
        schema: what to ask for, which is also the type of the value. It can be a flat pydantic model, a dataclass, or a
            type for one field: `str`, `int`, `float`, `bool`, `date`, `datetime`, `Literal` or an enum. A list of texts
            (`["a", "b"]`) asks for one of them, and a list in a list (`[["a", "b"]]`) for several. Instead of a
            text, it can have pairs of a text and a title. A JSON Schema of an object returns a dict.
        default: the value if the user declines or dismisses the form, or the client answers with an error.
    """

    message: str
    schema: Any
    default: D = _NO_DEFAULT

    if TYPE_CHECKING:

        @overload
        def __init__(self, message: str, schema: type[V], default: D = ...) -> None: ...
        @overload
        def __init__(self: Elicit[dict[str, Any]], message: str, schema: Mapping[str, Any]) -> None: ...
        @overload
        def __init__(
            self: Elicit[dict[str, Any], D2], message: str, schema: Mapping[str, Any], default: D2
        ) -> None: ...
        @overload
        def __init__(self: Elicit[str], message: str, schema: Choices) -> None: ...
        @overload
        def __init__(self: Elicit[str, D2], message: str, schema: Choices, default: D2) -> None: ...
        @overload
        def __init__(self: Elicit[list[str]], message: str, schema: SeveralChoices) -> None: ...
        @overload
        def __init__(self: Elicit[list[str], D2], message: str, schema: SeveralChoices, default: D2) -> None: ...
        @overload
        def __init__(self, message: str, schema: TypeForm[V], default: D = ...) -> None: ...
        def __init__(self, message: str, schema: Any, default: Any = ...) -> None: ...

    def question(self, key: str) -> Question:
        """Return the engine's form of this question under the author's key."""
        schema = self.schema
        if isinstance(schema, type):
            form = form_of_class(schema)
        elif isinstance(schema, Mapping):
            return super().question(key)
        else:
            form = form_of(schema)
        shown = form.titled(self.message) if form.has_one_field else form.schema
        return Question(
            method=ELICIT,
            params={"mode": "form", "message": self.message, "requestedSchema": shown},
            capabilities=_FORM,
            digest=form.digest,
            read=lambda answer: self._read(key, answer),
        )

    def _request(self) -> _Request:
        params = {"mode": "form", "message": self.message, "requestedSchema": _given_schema(self.schema)}
        return ELICIT, params, _FORM

    def _value(self, result: Mapping[str, Any]) -> Any:
        content = result.get("content")
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise InvalidAnswer
        schema: Any = self.schema
        try:
            if isinstance(schema, type):
                return form_of_class(schema).read(content)
            if not isinstance(schema, Mapping):
                return form_of(schema).read(content)
            problems = _schema_validator(_canonical(schema)).problems(content)
            if problems is not None:
                raise misfit_of_schema(*problems)
        except InvalidAnswer:
            given = without_nulls(content)
            if given is content:
                raise
            return self._value({"content": given})
        return copy_json(dict(content))


@dataclass(frozen=True)
class ElicitUrl(_Elicitation[Accepted | D], Generic[D]):
    """Ask the user to visit a URL. Use it for secrets, which must not pass through the client.

    The value is `"accept"`: the user agreed to go there. That does not mean that they are done. The URL must be an http
    or https URL with a host, without a user name, in ASCII.
    """

    message: str
    url: str
    default: D = _NO_DEFAULT

    if TYPE_CHECKING:

        @overload
        def __init__(self: ElicitUrl, message: str, url: str) -> None: ...
        @overload
        def __init__(self, message: str, url: str, default: D) -> None: ...
        def __init__(self, message: str, url: str, default: Any = ...) -> None: ...

    def _request(self) -> _Request:
        return ELICIT, {"mode": "url", "message": self.message, "url": self.url}, _URL

    def _problem(self) -> str:
        problem = web_url_problem(self.url)
        return "" if problem is None else f"has a url that {problem}"

    def _value(self, _result: Mapping[str, Any]) -> Accepted:
        return "accept"


class Completion(BaseModel):
    """The answer of the client's language model to a `Sample`."""

    role: str
    content: dict[str, Any] | list[dict[str, Any]]
    model: str
    stopReason: str | None = None  # noqa: N815 - the wire's name

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


_COMPLETION: Final = Reader(stopping_validator(Completion))


@dataclass(frozen=True)
class Sample(Ask[Completion | D], Generic[D]):
    """Ask the client's language model for a completion.

    Args:
        messages: the text of one user message, or a list of `SamplingMessage` objects of the protocol.
        max_tokens: the most tokens that the model may generate.
        system_prompt: a system prompt for the model.
        tools: tools that the model can use. The client needs the capability `sampling.tools`.
        options: other params of `sampling/createMessage`, by their names in the protocol. With `includeContext`, the
            client needs the capability `sampling.context`.
        default: the value if the client answers with an error.
    """

    messages: str | Sequence[Mapping[str, Any]]
    max_tokens: int
    system_prompt: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] | None = None
    default: D = _NO_DEFAULT

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Sample,
            messages: str | Sequence[Mapping[str, Any]],
            max_tokens: int,
            system_prompt: str | None = None,
            tools: Sequence[Mapping[str, Any]] | None = None,
            options: Mapping[str, Any] | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            messages: str | Sequence[Mapping[str, Any]],
            max_tokens: int,
            system_prompt: str | None = None,
            tools: Sequence[Mapping[str, Any]] | None = None,
            options: Mapping[str, Any] | None = None,
            default: D = ...,
        ) -> None: ...
        def __init__(self, *args: Any, **more: Any) -> None: ...

    def _request(self) -> _Request:
        messages = self.messages
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        params: dict[str, Any] = {**(self.options or {}), "messages": list(messages), "maxTokens": self.max_tokens}
        if self.system_prompt is not None:
            params["systemPrompt"] = self.system_prompt
        if self.tools is not None:
            params["tools"] = list(self.tools)
        return SAMPLE, params, of_sampling(params)

    def _problem(self) -> str:
        options = self.options or {}
        for name in options:
            if name in _NO_OPTIONS:
                return f"has {name!r} in its options; use {_NO_OPTIONS[name]}"
        if "toolChoice" in options and self.tools is None:
            return "has 'toolChoice' in its options, but no tools; add `tools`"
        return ""

    def _value(self, result: Mapping[str, Any]) -> Completion:
        completion: Completion = _COMPLETION.read(result)
        return completion


class Root(BaseModel):
    """A directory or file that servers may work in."""

    uri: str
    name: str | None = None


class _RootsResult(BaseModel):
    roots: list[Root]


_ROOTS: Final = Reader(stopping_validator(_RootsResult))


@dataclass(frozen=True)
class Roots(Ask[list[Root] | D], Generic[D]):
    """Ask the client for its roots: the directories and files that servers may work in."""

    default: D = _NO_DEFAULT

    if TYPE_CHECKING:

        @overload
        def __init__(self: Roots) -> None: ...
        @overload
        def __init__(self, default: D) -> None: ...
        def __init__(self, default: Any = ...) -> None: ...

    def _request(self) -> _Request:
        return ROOTS, {}, (("roots",),)

    def _value(self, result: Mapping[str, Any]) -> list[Root]:
        roots: _RootsResult = _ROOTS.read(result)
        return roots.roots


def wire_ask(method: str, params: Mapping[str, Any], digest: bytes) -> Ask[Any]:
    """Return a question that can read the answers to a stored question, given its request.

    An answer is read by the form's schema. If the form has several fields and this process knows its type, the answer
    is read as that. It does if the tool declares its questions, or has asked them in this process. `params` are those
    of `elicitation/create`, `sampling/createMessage` or `roots/list`.
    """
    if method == ROOTS:
        return Roots()
    if method == SAMPLE:
        return Sample("", 1)
    if params.get("mode") == "url":
        return ElicitUrl("", "")
    form: Any = form_by_digest(digest) or params["requestedSchema"]
    return Elicit[Any]("", form)


def _given_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an author's JSON Schema unchanged, after checking that a form can have it."""
    if schema.get("type") != "object":
        raise AuthoringError(
            "the schema of a form must have type 'object'; for choices with titles, use a list of pairs, "
            "such as [('a', 'The title of a')]"
        )
    _schema_validator(_canonical(schema))
    return dict(schema)


@lru_cache(maxsize=64)  # each of them may take 60 times its size in memory, and every call may ask another form
def _schema_validator(canonical: bytes) -> SchemaValidator:
    return SchemaValidator(msgspec.json.decode(canonical))


def _canonical(schema: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(json_value(schema, "the schema of a form"))
