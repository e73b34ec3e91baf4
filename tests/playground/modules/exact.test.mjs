import assert from "node:assert/strict";
import test from "node:test";
import { Exact, parse, stringify } from "../../../gateway/web/playground/static/exact.js";

test("integers that JavaScript would round are kept as they were written", () => {
  const text = '{"a":9007199254740993,"b":[-123456789012345678901234567890,1e400],"c":1.5}';
  const value = parse(text);
  assert(value.a instanceof Exact);
  assert.equal(stringify(value), text);
});

test("everything else is what JSON.parse makes of it", () => {
  for (const text of ['{"a":[1,2.5,"x\\u00e9\\n",null,true,{}]}', " [ ] ", '"😀"', "-0.5e-3", "0"]) {
    assert.equal(stringify(parse(text)), JSON.stringify(JSON.parse(text)));
  }
});

test("text that is not JSON is refused with its place", () => {
  for (const text of ["", "{", "[1,]", "01", '{"a" 1}', "nul", '"\n"', "1 2", "'a'"]) {
    assert.throws(() => parse(text), SyntaxError, text);
    assert.throws(() => JSON.parse(text), SyntaxError, text);
  }
  assert.throws(() => parse('{\n  "a": x}'), /line 2, column 8/);
});

test("a member named __proto__ is data like any other", () => {
  const value = parse('{"__proto__": {"x": 1}}');
  assert.equal(stringify(value), '{"__proto__":{"x":1}}');
  assert.equal({}.x, undefined);
});

test("deep nesting is refused, and does not overflow", () => {
  assert.throws(() => parse("[".repeat(100000)), /nested deeper/);
});

test("indented text has one member a line", () => {
  assert.equal(stringify({ a: [1, { b: new Exact("9".repeat(30)) }], c: {} }, "  "),
    `{\n  "a": [\n    1,\n    {\n      "b": ${"9".repeat(30)}\n    }\n  ],\n  "c": {}\n}`);
});

test("long strings do not overflow the stack, whatever is in them", () => {
  for (const piece of ["x", "\n", "\\", '"', "é"]) {
    const long = piece.repeat(8 << 20);
    assert.equal(parse(JSON.stringify({ long })).long, long);
  }
});

test("parsed objects are never elements of the view library, which have no constructor", () => {
  const value = parse('{"type":"img","props":{"src":"x"},"inner":{"constructor":null}}');
  assert.notEqual(value.constructor, undefined);
  assert.notEqual(value.inner.constructor, undefined);
  assert.equal(String(value.inner), '{"constructor":null}');
});
