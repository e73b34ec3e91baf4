// Forms from JSON Schema: which field a schema needs, its first value, and why a value does not fit. It never judges
// more than it understands: the server has the last word.

import { Exact, stringify } from "./exact.js";

const MAX_DEPTH = 8;

/** The most fields of one form. A schema can refer to itself, or be small and describe millions of fields. */
export const MAX_FIELDS = 500;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Return a member of a schema that should be a list. */
const listOf = (value) => (Array.isArray(value) ? value : []);

/** Return the fields of an object, by name. */
export const fieldsOf = (schema) => (isObject(schema.properties) ? Object.entries(schema.properties) : []);

/** Return the names of the required fields of an object. */
export const requiredOf = (schema) => new Set(listOf(schema.required));

/** Return whether two JSON values are equal, `Exact` included. */
export const isSame = (one, other) => one === other || (one !== undefined && other !== undefined && stringify(one) === stringify(other));

/** Follow a local `$ref`; anything else is returned as it is. */
export function resolve(schema, root, depth = 0) {
  if (!isObject(schema)) return {};
  const ref = schema.$ref;
  if (typeof ref !== "string" || !ref.startsWith("#") || depth > MAX_DEPTH) return schema;
  let target = root;
  for (const name of namesIn(ref)) {
    if (target === null || typeof target !== "object" || !Object.hasOwn(target, name)) return {};
    target = target[name];
  }
  const { $ref: _, ...rest } = schema;
  return { ...resolve(target, root, depth + 1), ...rest };
}

function namesIn(ref) {
  const parts = ref.slice(1).split("/").filter(Boolean);
  try {
    return parts.map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));
  } catch {
    return [undefined]; // not a valid reference, so it leads nowhere
  }
}

/** Return what kind of field a schema needs: choice, choices, boolean, number, text, object, array, variants or json. */
export function kindOf(schema) {
  if (Array.isArray(schema.enum) || options(schema) !== null) return "choice";
  if (schema.const !== undefined) return "const";
  const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type;
  if (type === "array") return options(resolve(schema.items)) !== null || Array.isArray(schema.items?.enum) ? "choices" : "array";
  if (type === "boolean") return "boolean";
  if (type === "integer" || type === "number") return "number";
  if (type === "string") return "text";
  if (type === "object" || schema.properties !== undefined) return isObject(schema.properties) ? "object" : "json";
  if (variants(schema).length > 0) return "variants";
  return "json";
}

/** Return the choices of a `oneOf` or `anyOf` of constants with titles, or null. */
export function options(schema) {
  const each = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(each) || !each.every((one) => isObject(one) && Object.hasOwn(one, "const"))) return null;
  return each.map((one) => ({ value: one.const, title: show(one.title ?? one.const) }));
}

/** Return the choices of a field, with their titles. */
export function choicesOf(schema) {
  const names = listOf(schema.enumNames);
  return options(schema) ?? schema.enum.map((value, place) => ({ value, title: show(names[place] ?? value) }));
}

function show(value) {
  return typeof value === "string" ? value : stringify(value);
}

/** Return the schemas that a value may match, without null. */
export function variants(schema) {
  return listOf(schema.anyOf ?? schema.oneOf).filter((each) => isObject(each) && each.type !== "null");
}

/** Return the first value of a field: the default, or an empty value where one is required; undefined otherwise. */
export function initial(schema, root, isRequired, depth = 0, budget = { fields: MAX_FIELDS }) {
  budget.fields -= 1;
  const found = resolve(schema, root);
  if (found.default !== undefined) return found.default;
  if (found.const !== undefined) return found.const;
  if (!isRequired || depth > MAX_DEPTH || budget.fields < 0) return undefined;
  switch (kindOf(found)) {
    case "object":
      return initialObject(found, root, depth, budget);
    case "array":
    case "choices":
      return [];
    case "boolean":
      return false;
    case "variants":
      return initial(variants(found)[0], root, true, depth + 1, budget);
    case "json":
      return {};
    default:
      return undefined;
  }
}

export function initialObject(schema, root, depth = 0, budget = { fields: MAX_FIELDS }) {
  const object = Object.create(null);
  const required = requiredOf(schema);
  for (const [name, member] of fieldsOf(schema)) {
    const value = initial(member, root, required.has(name), depth + 1, budget);
    if (value !== undefined) object[name] = value;
  }
  return object;
}

/**
 * Return whether a form for a value has a bearable number of fields.
 *
 * Optional objects without a value do not count: the form shows them once they are added.
 */
export function isDrawable(schema, root, value) {
  return fieldsLeft(schema, root, value, MAX_FIELDS) >= 0;
}

function fieldsLeft(schema, root, value, fields) {
  const found = resolve(schema, root);
  const kind = kindOf(found);
  let left = fields - 1;
  if (kind === "variants") {
    for (const each of variants(found)) if (left >= 0) left = fieldsLeft(each, root, value, left);
    return left;
  }
  if (value === undefined || left < 0) return left;
  if (kind === "object") {
    for (const [name, member] of fieldsOf(found)) {
      if (left >= 0) left = fieldsLeft(member, root, isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined, left);
    }
  } else if (kind === "array") {
    for (const item of listOf(value)) if (left >= 0) left = fieldsLeft(found.items, root, item, left);
  }
  return left;
}

const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an e-mail address"],
  uri: [/^[a-z][a-z0-9+.-]*:\S+$/i, "a URI"],
  date: [/^\d{4}-\d{2}-\d{2}$/, "a date such as 2026-01-31"],
  "date-time": [/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/, "a date and time such as 2026-01-31T12:00:00Z"],
};

/** Return why a value does not fit, by the path of its field, such as "fields.name". */
export function problems(value, schema, root, path = "", isRequired = true, found = Object.create(null), depth = 0) {
  const resolved = resolve(schema, root);
  const note = (text) => {
    found[path] = text;
    return found;
  };
  if (value === undefined) return isRequired ? note("is required") : found;
  if (value === null || depth > MAX_DEPTH) return found;
  const kind = kindOf(resolved);
  if (kind === "choice" && !choicesOf(resolved).some((choice) => isSame(choice.value, value))) return note("choose one");
  if (value instanceof Exact) return found;
  if (kind === "number") {
    if (typeof value !== "number") return note("must be a number");
    if (resolved.type === "integer" && !Number.isInteger(value)) return note("must be a whole number");
    if (value < (resolved.minimum ?? -Infinity)) return note(`must be at least ${resolved.minimum}`);
    if (value > (resolved.maximum ?? Infinity)) return note(`must be at most ${resolved.maximum}`);
  }
  if (kind === "text") {
    if (typeof value !== "string") return note("must be text");
    const length = [...value].length;
    if (length < (resolved.minLength ?? 0)) return note(length === 0 ? "is required" : `must have at least ${resolved.minLength} characters`);
    if (length > (resolved.maxLength ?? Infinity)) return note(`must have at most ${resolved.maxLength} characters`);
    const format = Object.hasOwn(FORMATS, resolved.format) ? FORMATS[resolved.format] : undefined;
    if (format !== undefined && !format[0].test(value)) return note(`must be ${format[1]}`);
  }
  if (kind === "array" || kind === "choices") {
    if (!Array.isArray(value)) return note("must be a list");
    if (value.length < (resolved.minItems ?? 0)) return note(`needs at least ${resolved.minItems}`);
    if (value.length > (resolved.maxItems ?? Infinity)) return note(`takes at most ${resolved.maxItems}`);
    if (kind === "array") {
      value.forEach((item, place) => problems(item, resolved.items, root, `${path}[${place}]`, true, found, depth + 1));
    }
  }
  if (kind === "object") {
    if (typeof value !== "object" || Array.isArray(value)) return note("must be an object");
    const required = requiredOf(resolved);
    for (const [name, member] of fieldsOf(resolved)) {
      problems(Object.hasOwn(value, name) ? value[name] : undefined, member, root, path ? `${path}.${name}` : name, required.has(name), found, depth + 1);
    }
  }
  return found;
}
