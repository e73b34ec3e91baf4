import assert from "node:assert/strict";
import test from "node:test";
import { choicesOf, initialObject, kindOf, problems, resolve } from "../../../gateway/web/playground/static/schema.js";

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
