// The client of MCP 2026-07-28 over HTTP, for one page.

import { Exact, parse, stringify } from "./exact.js";
import { EventReader } from "./sse.js";

export const VERSION = "2026-07-28";
export const TASKS = "io.modelcontextprotocol/tasks";
const META = "io.modelcontextprotocol/";
const NAMED = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};
const LISTS = {
  "tools/list": "tools",
  "prompts/list": "prompts",
  "resources/list": "resources",
  "resources/templates/list": "resourceTemplates",
};
const MAX_PAGES = 100;
const PLAIN = /^[\x20-\x7e]*$/;

/** What the page can do for a tool that asks. */
export const CAPABILITIES = {
  elicitation: { form: {}, url: {} },
  sampling: {},
  roots: {},
  extensions: { [TASKS]: {} },
};

/** Encode the value of an `Mcp-Name` or `Mcp-Param-*` header (2026-07-28 "Streamable HTTP", Value Encoding). */
export function headerValue(text) {
  const isPlain = PLAIN.test(text) && text.trim() === text && !(text.startsWith("=?base64?") && text.endsWith("?="));
  if (isPlain) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}?=`;
}

/** Return the `Mcp-Param-*` headers that a tool's input schema asks for. */
export function paramHeaders(schema, args) {
  const headers = {};
  collect(schema, args, headers);
  return headers;
}

function collect(schema, value, headers) {
  if (value === null || typeof value !== "object" || value instanceof Exact) return;
  for (const [name, member] of Object.entries(schema?.properties ?? {})) {
    const given = Object.hasOwn(value, name) ? value[name] : undefined;
    if (given === undefined || given === null) continue;
    const header = member?.["x-mcp-header"];
    const isPlain = typeof given !== "object" || given instanceof Exact;
    if (typeof header === "string" && isPlain) headers[`Mcp-Param-${header}`] = headerValue(String(given));
    else collect(member, given, headers);
  }
}

/** Write the message of a request. */
export function message(id, method, params, { capabilities = CAPABILITIES, meta = {} } = {}) {
  const own = {
    [`${META}protocolVersion`]: VERSION,
    [`${META}clientCapabilities`]: capabilities,
    [`${META}clientInfo`]: { name: "sealed-gateway-playground", version: "1" },
  };
  return stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: { ...own, ...meta } } });
}

/** Return the headers of a request, without the token. */
export function headersOf(method, params, more = {}) {
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": method,
    ...more,
  };
  const named = NAMED[method];
  if (named !== undefined && typeof params[named] === "string") headers["Mcp-Name"] = headerValue(params[named]);
  return headers;
}

/** An answer that is not a JSON-RPC message, or no answer at all. */
export class NoAnswer extends Error {}

export class Client {
  /**
   * @param token returns the bearer token, or "".
   * @param fetcher sends requests; tests replace it.
   */
  constructor({ token = () => "", fetcher = (...given) => fetch(...given) } = {}) {
    this._token = token;
    this._fetch = fetcher;
    this._id = 0;
  }

  /**
   * Send one request and return what came back, whatever it is.
   *
   * @param options.replica the replica to ask; without it, the next one.
   * @param options.onMessage called with each notification of the answer's stream.
   * @param options.signal aborting it closes the stream, which cancels the request.
   * @returns {status, replica, ms, message, challenge}: the HTTP status, who answered, and the JSON-RPC message.
   */
  async request(method, params = {}, { replica, onMessage, signal, headers, capabilities, meta } = {}) {
    const id = ++this._id;
    const body = message(id, method, params, { capabilities, meta });
    const token = this._token();
    const started = performance.now();
    const response = await this._fetch(address(replica), {
      method: "POST",
      body,
      signal,
      headers: { ...headersOf(method, params, headers), ...(token && { Authorization: `Bearer ${token}` }) },
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
    const answer = await read(response, id, onMessage);
    return {
      status: response.status,
      replica: response.headers.get("x-gateway-replica"),
      ms: performance.now() - started,
      challenge: response.headers.get("www-authenticate"),
      message: answer,
    };
  }

  /** Return the result of a request. Throws an `RpcError` if there is none. */
  async result(method, params, options) {
    const answer = await this.request(method, params, options);
    if (answer.message.error !== undefined) throw new RpcError(answer);
    return answer.message.result;
  }

  /** Return all entries of a list, over all of its pages. */
  async list(method, options) {
    const entries = [];
    let cursor;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const result = await this.result(method, cursor === undefined ? {} : { cursor }, options);
      entries.push(...(result[LISTS[method]] ?? []));
      cursor = result.nextCursor;
      if (cursor === undefined || cursor === null) break;
    }
    return entries;
  }
}

/** The gateway refused a request. */
export class RpcError extends Error {
  constructor(answer) {
    super(String(answer.message.error.message ?? "The server refused the request"));
    this.answer = answer;
    this.code = answer.message.error.code;
    this.data = answer.message.error.data;
  }
}

function address(replica) {
  return replica ? `playground/replicas/${encodeURIComponent(replica)}/mcp` : "mcp";
}

async function read(response, id, onMessage) {
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    const answer = messageIn(await response.text());
    if (answer === null) throw new NoAnswer(`The server answered ${response.status} without a JSON-RPC message`);
    return answer;
  }
  const events = new EventReader();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new NoAnswer("The stream ended before the answer");
      for (const data of events.take(value)) {
        const each = messageIn(data);
        if (each?.id === id && each.method === undefined) return each;
        if (each !== null) onMessage?.(each);
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // an aborted stream cannot be cancelled again
  }
}

/** Return the JSON-RPC message in a text, or null if it is not one. */
function messageIn(text) {
  try {
    const found = parse(text);
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}
