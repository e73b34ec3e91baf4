"""Steps, logs and checkpoints."""

import asyncio
from typing import Any, TypedDict, assert_type

from gateway import Context, tool


class Row(TypedDict):
    page: str
    words: int


def save(page: str, words: int, *, draft: bool = False, key: str = "") -> Row:
    return {"page": page, "words": words if draft else len(key)}


async def count(page: str) -> int:
    await asyncio.sleep(0)
    return len(page)


@tool
async def steps(ctx: Context) -> None:
    """Run steps."""
    assert_type(await ctx.step("save", save, "tea", 3), Row)
    assert_type(await ctx.step("draft", save, "tea", words=3, draft=True, key="k"), Row)
    assert_type(await ctx.step("count", count, "tea"), int)
    assert_type(await ctx.step("count-2", count, page="tea"), int)
    assert_type(await ctx.step("sorted", lambda: 1), int)
    await ctx.step("bad", save, 1, 2)  # E: call-overload reportArgumentType
    await ctx.step("few", save, "tea")  # E: call-overload reportCallIssue
    await ctx.step("many", count, "tea", 2)  # E: call-overload reportCallIssue
    await ctx.step("word", save, "tea", 3, darft=True)  # E: call-arg reportCallIssue
    row = await ctx.step("row", save, "tea", 3)
    row["wrods"]  # E: misc reportGeneralTypeIssues
    _text: str = await ctx.step("type", count, "tea")  # E: call-overload reportAssignmentType
    await ctx.step("called", save("tea", 3))  # E: call-overload reportArgumentType
    ctx.step("awaited", count, "tea") + 1  # E: operator reportOperatorIssue


@tool
async def notices(ctx: Context, level: str) -> None:
    """Report."""
    ctx.log("notice", {"page": "tea"})
    ctx.log("warn", "tea")  # E: arg-type reportArgumentType
    ctx.log(level, "tea")  # E: arg-type reportArgumentType
    ctx.progress("half")  # E: arg-type reportArgumentType
    assert_type(ctx.resumed(0), int)
    assert_type(ctx.resumed(list[str]()), list[str])
    assert_type(ctx.resumed(None, Row), Row | None)
    assert_type(ctx.resumed(0, list[Row]), int | list[Row])
    ctx.resumed(None, type=Row)["page"]  # E: index reportOptionalSubscript
    await ctx.checkpoint({"page": 1})
    await ctx.checkpoint([save("tea", 3)], list[Row])
    await ctx.checkpoint()  # E: call-arg reportCallIssue


@steps.migrate(from_=1, to=2)
def add_depth(checkpoint: Any) -> dict[str, int]:
    return {"page": int(checkpoint), "depth": 0}


assert_type(add_depth("1"), dict[str, int])
add_depth()  # E: call-arg reportCallIssue
steps.migrate(from_="1", to=2)  # E: arg-type reportArgumentType


@steps.migrate(from_=2, to=3)  # E: type-var reportArgumentType
def takes_two(checkpoint: Any, more: int) -> int:
    return int(checkpoint) + more
