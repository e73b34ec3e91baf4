// JSON with numbers as they were written. `JSON.parse` rounds integers above 2^53, and then the digest of the arguments
// would differ on the next leg.

/** A piece of JSON text that is kept as it is, such as a large integer. */
export class Exact {
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const BLANK = /[ \t\n\r]*/y;
const WORDS = { true: true, false: false, null: null };
const MAX_DEPTH = 100;

/**
 * What parsed objects inherit. It has no setter for `__proto__`, so that name is data like any other. It has a
 * `constructor`, by which the view library tells data from its own elements: without one, data would become markup.
 */
const PARSED = Object.assign(Object.create(null), {
  constructor: Object,
  toString() {
    return stringify(this);
  },
});

/** Parse JSON text. Numbers that JavaScript cannot hold become `Exact`. Throws a `SyntaxError` that names the place. */
export function parse(text) {
  let at = 0;

  function match(pattern) {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found === null) return null;
    at = pattern.lastIndex;
    return found[0];
  }

  function fail() {
    const before = text.slice(0, at).split("\n");
    const what = at < text.length ? `unexpected ${JSON.stringify(text[at])}` : "the text ends too early";
    throw new SyntaxError(`${what} in line ${before.length}, column ${before.at(-1).length + 1}`);
  }

  function take(character) {
    match(BLANK);
    if (text[at] !== character) return false;
    at += 1;
    return true;
  }

  // Not a regular expression: those overflow the stack at strings of a few MB.
  function string() {
    if (text[at] !== '"') return null;
    let end = at;
    do end = text.indexOf('"', end + 1);
    while (end > 0 && isEscaped(end));
    try {
      const found = JSON.parse(text.slice(at, end + 1));
      at = end + 1;
      return found;
    } catch {
      return fail();
    }
  }

  function isEscaped(place) {
    let before = place;
    while (text[before - 1] === "\\") before -= 1;
    return (place - before) % 2 === 1;
  }

  function members(depth) {
    const object = Object.create(PARSED);
    if (take("}")) return object;
    do {
      match(BLANK);
      const name = string();
      if (name === null || !take(":")) fail();
      object[name] = value(depth);
    } while (take(","));
    if (!take("}")) fail();
    return object;
  }

  function elements(depth) {
    const array = [];
    if (take("]")) return array;
    do array.push(value(depth));
    while (take(","));
    if (!take("]")) fail();
    return array;
  }

  function value(depth) {
    if (depth > MAX_DEPTH) throw new SyntaxError(`nested deeper than ${MAX_DEPTH} levels`);
    if (take("{")) return members(depth + 1);
    if (take("[")) return elements(depth + 1);
    const found = string();
    if (found !== null) return found;
    const number = match(NUMBER);
    if (number !== null) return numberOf(number);
    for (const [word, meaning] of Object.entries(WORDS)) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    return fail();
  }

  const whole = value(0);
  match(BLANK);
  if (at < text.length) fail();
  return whole;
}

function numberOf(text) {
  const number = Number(text);
  const isInteger = /^-?\d+$/.test(text);
  return (isInteger && !Number.isSafeInteger(number)) || !Number.isFinite(number) ? new Exact(text) : number;
}

/** Write JSON text. `Exact` is written as it is; members that are undefined are omitted. */
export function stringify(value, indent = "") {
  return write(value, indent, "\n");
}

function write(value, indent, line) {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = line + indent;
  const isArray = Array.isArray(value);
  const parts = isArray
    ? value.map((element) => write(element, indent, inner))
    : Object.entries(value)
        .filter(([, member]) => member !== undefined)
        .map(([name, member]) => `${JSON.stringify(name)}:${indent && " "}${write(member, indent, inner)}`);
  const [open, close] = isArray ? "[]" : "{}";
  if (parts.length === 0) return open + close;
  return indent ? open + inner + parts.join(`,${inner}`) + line + close : open + parts.join(",") + close;
}
