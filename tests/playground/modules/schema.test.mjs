import assert from "node:assert/strict";
import test from "node:test";
import { Exact, parse } from "../../../gateway/web/playground/static/exact.js";
import { choicesOf, initialObject, isDrawable, kindOf, problems, resolve } from "../../../gateway/web/playground/static/schema.js";

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1 },
    size: { enum: ["S", "M"], enumNames: ["Small", "Medium"] },
    count: { type: "integer", minimum: 1, default: 2 },
    tags: { type: "array", items: { type: "string" }, minItems: 1 },
    at: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    pet: { $ref: "#/$defs/Pet" },
  },
  required: ["name", "tags", "at"],
  $defs: { Pet: { type: "object", properties: { kind: { const: "cat" } } } },
};

test("a form starts with defaults and with what is required", () => {
  assert.equal(JSON.stringify(initialObject(SCHEMA, SCHEMA)), '{"count":2,"tags":[],"at":{}}');
});

test("each problem is named by the path of its field", () => {
  const found = problems({ name: "", size: "XL", count: 0.5, tags: [], at: {} }, SCHEMA, SCHEMA);
  assert.deepEqual(Object.keys(found).sort(), ["at.city", "count", "name", "size", "tags"]);
  assert.deepEqual(Object.keys(problems({ name: "x", tags: ["a"], at: { city: "Bern" } }, SCHEMA, SCHEMA)), []);
});

test("choices have their titles", () => {
  assert.deepEqual(choicesOf(SCHEMA.properties.size)[0], { value: "S", title: "Small" });
  const titled = { oneOf: [{ const: 1, title: "One" }] };
  assert.equal(kindOf(titled), "choice");
  assert.deepEqual(choicesOf(titled), [{ value: 1, title: "One" }]);
});

test("a reference that leads in circles or nowhere ends", () => {
  const circle = { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } };
  assert.equal(typeof resolve(circle, circle), "object");
  assert.deepEqual(resolve({ $ref: "#/constructor/prototype" }, {}), {});
});

test("schemas that no form can show become JSON", () => {
  for (const schema of [{}, true, { type: "object" }, { not: {} }]) assert.equal(kindOf(resolve(schema, {})), "json");
});

test("a field named __proto__ is a field like any other", () => {
  const schema = JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}},"required":["__proto__"]}');
  assert.deepEqual(Object.keys(problems({}, schema, schema)), ["__proto__"]);
});

test("schemas of any shape are read without an error", () => {
  const odd = [null, 5, "x", [], { required: 5, properties: 7 }, { properties: { a: null, b: 3 } }, { anyOf: { a: 1 } }, { oneOf: "x" }, { enum: [], enumNames: 4 },
    { type: 7 }, { type: "array", items: null }, { type: "array", items: 5 }, { $ref: "#/%" }, { $ref: "#" }, { type: "string", format: "constructor" }, { anyOf: [{ $ref: "#" }] }];
  for (const schema of odd) {
    const found = resolve(schema, schema);
    kindOf(found);
    initialObject(found, schema);
    isDrawable(schema, schema, {});
    for (const value of [undefined, null, "x", 1, [1], { a: 1 }]) problems(value, schema, schema);
  }
});

test("a schema that contains itself is one level at a time, and one that explodes is JSON", () => {
  const node = { type: "object", properties: { value: { type: "string" }, next: { $ref: "#" } } };
  assert(isDrawable(node, node, initialObject(node, node)));
  const names = Array.from({ length: 20 }, (_, number) => `p${number}`);
  const bomb = { type: "object", properties: Object.fromEntries(names.map((name) => [name, { $ref: "#" }])), required: names };
  assert(JSON.stringify(initialObject(bomb, bomb)).length < 10_000);
  assert(!isDrawable(bomb, bomb, { p0: initialObject(bomb, bomb), p1: initialObject(bomb, bomb) }));
  const list = { type: "object", properties: { all: { type: "array", items: node } } };
  assert(!isDrawable(list, list, { all: Array.from({ length: 10_000 }, () => ({})) }));
  const circle = { type: "object", properties: { a: { anyOf: [{ $ref: "#/properties/a" }] } } };
  assert(!isDrawable(circle, circle, {}));
});

test("choices may be any JSON", () => {
  const schema = { enum: [{ a: 1 }, [2], new Exact("9007199254740993")] };
  for (const value of parse('[{"a":1},[2],9007199254740993]')) assert.deepEqual(Object.keys(problems(value, schema, schema)), []);
  assert.deepEqual(Object.keys(problems(new Exact("9007199254740995"), schema, schema)), [""]);
});
