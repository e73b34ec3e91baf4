"""The questions that an author can ask, and how their answers are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, Literal, Never, TypeAlias, cast

import msgspec
from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from gateway.authoring.form_schemas import form_schema
from gateway.authoring.misfits import misfit_of_model, misfit_of_schema
from gateway.authoring.model_validators import stopping_validator
from gateway.authoring.schema_validation import SchemaValidator
from gateway.engine.questions import ELICIT, ROOTS, SAMPLE, Answer, InvalidAnswer, Question, question_digest
from gateway.engine.values import copy_json, json_value
from gateway.errors import AuthoringError, Declined, Dismissed, Refused

T = TypeVar("T", default=Any)
V = TypeVar("V", default=dict[str, Any])
D = TypeVar("D", default=Never)

Accepted: TypeAlias = Literal["accept"]
"""The value of a question that sends the user to a URL: the user agreed to go there."""

_EXACT_FLOATS: Final = 2**53
"""Below this, a float with an integral value is exactly that integer."""


MOST_MODELS: Final = 10_000
"""How many form models are remembered. A tool that creates a model in each call must not fill the memory."""


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
        method, params, capability = self._request()
        return Question(
            method=method,
            params=params,
            capability=capability,
            digest=self._digest(method, params),
            read=lambda answer: self._read(key, answer),
        )

    def _digest(self, method: str, params: Mapping[str, Any]) -> bytes:
        return question_digest(method, params)

    def _request(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        raise NotImplementedError

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
        schema: a flat pydantic model, to get an instance of it, or a JSON Schema of the restricted kind that forms
            allow, to get a dict.
        default: the value if the user declines or dismisses the form, or the client answers with an error.
    """

    message: str
    schema: type[V] | Mapping[str, Any]
    default: D = _NO_DEFAULT

    def _request(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        params = {"mode": "form", "message": self.message, "requestedSchema": requested_schema(self.schema)}
        return ELICIT, params, ("elicitation", "form")

    def _digest(self, method: str, params: Mapping[str, Any]) -> bytes:
        schema: Any = self.schema
        return _model_digest(schema) if isinstance(schema, type) else super()._digest(method, params)

    def _value(self, result: Mapping[str, Any]) -> Any:
        content = result.get("content", {})
        if not isinstance(content, dict):
            raise InvalidAnswer
        if not isinstance(self.schema, type):
            validator = _schema_validator(_canonical(self.schema))
            problem = validator.problem(content)
            if problem is not None:
                raise misfit_of_schema(problem, validator.problem(content, quotes=False))
            return copy_json(dict(content))
        given = {name: _integral(item) if type(item) is float else item for name, item in content.items()}
        return _read_model(self.schema, given)


@dataclass(frozen=True)
class ElicitUrl(_Elicitation[Accepted | D], Generic[D]):
    """Ask the user to visit a URL. Use it for secrets, which must not pass through the client.

    The value is `"accept"`: the user agreed to go there. That does not mean that they are done.
    """

    message: str
    url: str
    default: D = _NO_DEFAULT

    def _request(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        return ELICIT, {"mode": "url", "message": self.message, "url": self.url}, ("elicitation", "url")

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


@dataclass(frozen=True)
class Sample(Ask[Completion | D], Generic[D]):
    """Ask the client's language model for a completion.

    Args:
        messages: the text of one user message, or a list of `SamplingMessage` objects of the protocol.
        max_tokens: the most tokens that the model may generate.
        system_prompt: a system prompt for the model.
        tools: tools that the model can use. The client needs the capability `sampling.tools`.
        options: other params of `sampling/createMessage`, by their names in the protocol.
        default: the value if the client answers with an error.
    """

    messages: str | Sequence[Mapping[str, Any]]
    max_tokens: int
    system_prompt: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] | None = None
    default: D = _NO_DEFAULT

    def _request(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        messages = self.messages
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        params: dict[str, Any] = {**(self.options or {}), "messages": list(messages), "maxTokens": self.max_tokens}
        if self.system_prompt is not None:
            params["systemPrompt"] = self.system_prompt
        if self.tools is not None:
            params["tools"] = list(self.tools)
            return SAMPLE, params, ("sampling", "tools")
        return SAMPLE, params, ("sampling",)

    def _value(self, result: Mapping[str, Any]) -> Completion:
        completion: Completion = _read_model(Completion, result)
        return completion


class Root(BaseModel):
    """A directory or file that servers may work in."""

    uri: str
    name: str | None = None


class _RootsResult(BaseModel):
    roots: list[Root]


@dataclass(frozen=True)
class Roots(Ask[list[Root] | D], Generic[D]):
    """Ask the client for its roots: the directories and files that servers may work in."""

    default: D = _NO_DEFAULT

    def _request(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        return ROOTS, {}, ("roots",)

    def _value(self, result: Mapping[str, Any]) -> list[Root]:
        roots: _RootsResult = _read_model(_RootsResult, result)
        return roots.roots


def wire_ask(method: str, params: Mapping[str, Any], digest: bytes) -> Ask[Any]:
    """Return a question that can read the answers to a stored question, given its request.

    The answer to a form is read by the form's model if this process knows it: because the tool declares its
    questions, or has asked them in this process. Otherwise it is read by the form's schema.

    Args:
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: the params of that request.
        digest: the digest of the question.
    """
    if method == ROOTS:
        return Roots()
    if method == SAMPLE:
        return Sample("", 1)
    if params.get("mode") == "url":
        return ElicitUrl("", "")
    return Elicit("", _models.get(digest) or params["requestedSchema"])


def requested_schema(schema: Any) -> dict[str, Any]:
    """Return the `requestedSchema` of a form: made from a model, or a JSON Schema unchanged.

    Raises:
        AuthoringError: the schema is neither a flat pydantic model nor a JSON Schema of an object.
    """
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return _form_schema(schema)
    if not isinstance(schema, Mapping):
        raise AuthoringError(f"{schema!r} is neither a pydantic model nor a JSON Schema")
    if schema.get("type") != "object":
        raise AuthoringError("the schema of a form must have type 'object'")
    _schema_validator(_canonical(schema))
    return dict(schema)


_form_schema: Callable[[type[BaseModel]], dict[str, Any]] = lru_cache(maxsize=1024)(form_schema)


_models: Final[dict[bytes, type[BaseModel] | None]] = {}
"""The form models that this process has seen, by the digest of their question; None if two models share one."""


@lru_cache(maxsize=1024)
def _model_digest(model: type[BaseModel]) -> bytes:
    digest = question_digest(ELICIT, {"mode": "form", "requestedSchema": _form_schema(model)})
    if len(_models) < MOST_MODELS:
        _models[digest] = model if _models.get(digest, model) is model else None
    return digest


@lru_cache(maxsize=1024)
def _schema_validator(canonical: bytes) -> SchemaValidator:
    return SchemaValidator(msgspec.json.decode(canonical))


def _canonical(schema: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(json_value(schema, "the schema of a form"))


def _integral(value: float) -> int | float:
    """Return 5.0 as 5: they are the same number in JSON Schema, and a form's integer accepts both."""
    return int(value) if value.is_integer() and abs(value) < _EXACT_FLOATS else value


def _read_model(model: Any, content: Mapping[str, Any]) -> Any:
    """Validate strictly as JSON: `"5"` is not a number, but a string can be a date."""
    try:  # as `model_validate_json` does, without its options
        return stopping_validator(model).validate_json(msgspec.json.encode(content), strict=True)
    except ValidationError as error:
        raise misfit_of_model(error, content) from None
    except (ValueError, RecursionError):
        raise InvalidAnswer from None
