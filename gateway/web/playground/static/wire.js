// The client of MCP 2026-07-28 over HTTP, for one page.

import { parse, stringify } from "./exact.js";
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
  if (value === null || typeof value !== "object") return;
  for (const [name, member] of Object.entries(schema?.properties ?? {})) {
    const given = Object.hasOwn(value, name) ? value[name] : undefined;
    if (given === undefined || given === null) continue;
    const header = member?.["x-mcp-header"];
    if (typeof header === "string") headers[`Mcp-Param-${header}`] = headerValue(String(given));
    else collect(member, given, headers);
  }
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
    const body = stringify({
      jsonrpc: "2.0",
      id,
      method,
      params: { ...params, _meta: this._meta(capabilities, meta) },
    });
    const started = performance.now();
    const response = await this._fetch(address(replica), {
      method: "POST",
      body,
      signal,
      headers: this._headers(method, params, headers),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
    const message = await read(response, id, onMessage);
    return {
      status: response.status,
      replica: response.headers.get("x-gateway-replica"),
      ms: performance.now() - started,
      challenge: response.headers.get("www-authenticate"),
      message,
    };
  }

  _meta(capabilities = CAPABILITIES, meta = {}) {
    return {
      [`${META}protocolVersion`]: VERSION,
      [`${META}clientCapabilities`]: capabilities,
      [`${META}clientInfo`]: { name: "sealed-gateway-playground", version: "1" },
      ...meta,
    };
  }

  _headers(method, params, more = {}) {
    const headers = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": VERSION,
      "Mcp-Method": method,
      ...more,
    };
    const named = NAMED[method];
    if (named !== undefined && typeof params[named] === "string") headers["Mcp-Name"] = headerValue(params[named]);
    const token = this._token();
    if (token) headers.Authorization = `Bearer ${token}`;
    return headers;
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
    const text = await response.text();
    try {
      return parse(text);
    } catch {
      throw new NoAnswer(`The server answered ${response.status} without a JSON-RPC message`);
    }
  }
  const events = new EventReader();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new NoAnswer("The stream ended before the answer");
    for (const data of events.take(value)) {
      const message = parse(data);
      if (message.id === id && message.method === undefined) {
        await reader.cancel();
        return message;
      }
      onMessage?.(message);
    }
  }
}
