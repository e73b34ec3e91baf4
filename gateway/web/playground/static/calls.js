// Calls and their legs. This module knows the protocol, and nothing of the page.

import { Exact } from "./exact.js";

const MAX_SHEDS = 10;
const MAX_EVENTS = 50;

/** One request of a call, and what came of it. */
export class Leg {
  constructor(number, request, wanted) {
    this.number = number;
    this.request = request;
    this.wanted = wanted;
    this.startedAt = Date.now();
    this.kind = "running";
    this.progress = null;
    this.events = [];
    this.heard = 0;
    this.replica = null;
    this.ms = null;
    this.status = null;
    this.questions = {};
    this.state = null;
    this.result = null;
    this.error = null;
    this.challenge = null;
    this.note = "";
    this.aborting = new AbortController();
  }

  /** The size of the sealed state that the client carries to the next leg. */
  get stateBytes() {
    return this.state === null ? 0 : this.state.length;
  }

  /** Keep the last progress and the newest other events, so that no tool can fill the memory of the page. */
  hear(event) {
    if (event.type === "progress") {
      this.progress = event;
      return;
    }
    this.heard += 1;
    this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.shift();
  }

  get answers() {
    return this.request.params.inputResponses ?? {};
  }
}

/** One call, with all of its legs. Listeners are called after each change. */
export class Call {
  constructor(id, { method, params, title, headers }) {
    this.id = id;
    this.method = method;
    this.params = params;
    this.title = title;
    this.headers = headers ?? {};
    this.legs = [];
    this.startedAt = Date.now();
  }

  get last() {
    return this.legs.at(-1);
  }

  /** Whether the call is over when the page closes: its answer is not given, or a leg is running. */
  get isOpen() {
    return this.isRunning || this.last?.kind === "asks";
  }

  get isRunning() {
    return this.legs.some((leg) => leg.kind === "running");
  }

  /** Return the answers that the newest continuation of a leg has sent. */
  answersTo(leg) {
    const next = this.legs.findLast((other) => leg.state !== null && other.request.params.requestState === leg.state);
    return next?.answers ?? {};
  }
}

/** The calls of this page, newest first. */
export class Calls {
  /**
   * @param client sends requests.
   * @param onChange called after each change.
   * @param onTask called with the task that a call has become.
   */
  constructor(client, { onChange = () => {}, onTask = () => {} } = {}) {
    this.list = [];
    this._client = client;
    this._onChange = onChange;
    this._onTask = onTask;
    this._ids = 0;
  }

  /** Start a call. `params` are those of the first request; the arguments may be `Exact`. */
  start(order, { replica } = {}) {
    const call = new Call(++this._ids, order);
    this.list.unshift(call);
    this._run(call, { method: call.method, params: call.params }, { replica });
    return call;
  }

  /** Continue a call from a state that was copied elsewhere. */
  resume(order, state, { replica } = {}) {
    const call = new Call(++this._ids, order);
    this.list.unshift(call);
    this._run(call, { method: call.method, params: { ...call.params, requestState: state } }, { replica, note: "from a pasted state" });
    return call;
  }

  /** Answer the questions of a leg; also of an earlier one, which begins another course of the call. */
  answer(call, leg, answers, { replica } = {}) {
    const params = { ...call.params, inputResponses: answers };
    if (leg.state !== null) params.requestState = leg.state;
    const note = leg === call.last ? "" : `another answer to leg ${leg.number}`;
    return this._run(call, { method: call.method, params }, { replica, note });
  }

  /** Send the request of a leg once more, as a client does that has lost the answer. */
  resend(call, leg, { replica } = {}) {
    return this._run(call, leg.request, { replica, note: `leg ${leg.number} sent again` });
  }

  /** Answer a leg with a changed state, which no replica accepts. */
  tamper(call, leg, answers, { replica } = {}) {
    const params = { ...call.params, inputResponses: answers, requestState: changed(leg.state) };
    return this._run(call, { method: call.method, params }, { replica, note: "with a changed state" });
  }

  /** Cancel the running legs: on this version of the protocol, closing the stream cancels the request. */
  cancel(call) {
    for (const leg of call.legs) leg.aborting.abort();
  }

  /** Cancel and forget all calls. */
  clear() {
    for (const call of this.list) this.cancel(call);
    this.list = [];
    this._onChange();
  }

  remove(call) {
    this.cancel(call);
    this.list = this.list.filter((other) => other !== call);
    this._onChange();
  }

  async _run(call, request, { replica, note = "", sheds = 0 }) {
    const leg = new Leg(call.legs.length + 1, request, replica ?? null);
    leg.note = note;
    call.legs.push(leg);
    this._onChange();
    try {
      const answer = await this._client.request(request.method, request.params, {
        replica,
        headers: call.headers,
        signal: leg.aborting.signal,
        meta: { progressToken: `leg-${call.id}-${leg.number}`, "io.modelcontextprotocol/logLevel": "debug" },
        onMessage: (message) => {
          leg.hear(event(message));
          this._onChange();
        },
      });
      Object.assign(leg, { replica: answer.replica, ms: answer.ms, status: answer.status, challenge: answer.challenge });
      take(leg, answer.message);
    } catch (error) {
      const wasCancelled = error.name === "AbortError";
      leg.ms = Date.now() - leg.startedAt;
      leg.kind = wasCancelled ? "cancelled" : "lost";
      leg.error = wasCancelled ? null : { message: error.message };
    }
    if (leg.kind === "task") this._onTask(leg.result, call);
    this._onChange();
    if (leg.kind === "shed" && leg.state !== null && sheds < MAX_SHEDS && this.list.includes(call)) {
      const params = { ...call.params, requestState: leg.state };
      return this._run(call, { method: call.method, params }, { sheds: sheds + 1, note: "handed over by a busy or leaving replica" });
    }
    return leg;
  }
}

function take(leg, message) {
  if (message.error !== undefined) {
    leg.kind = "refused";
    leg.error = message.error;
    return;
  }
  const result = message.result ?? {};
  leg.result = result;
  if (result.resultType === "input_required") {
    leg.state = typeof result.requestState === "string" ? result.requestState : null;
    leg.questions = result.inputRequests ?? {};
    leg.kind = Object.keys(leg.questions).length > 0 ? "asks" : "shed";
  } else if (result.resultType === "task") {
    leg.kind = "task";
  } else {
    leg.kind = result.isError === true ? "failed" : "done";
  }
}

function event(message) {
  const params = message.params ?? {};
  const at = Date.now();
  if (message.method === "notifications/progress") {
    return { type: "progress", at, done: params.progress, total: params.total, message: params.message };
  }
  if (message.method === "notifications/message") {
    return { type: "log", at, level: params.level, data: params.data, logger: params.logger };
  }
  return { type: "other", at, method: message.method };
}

/** Change one character in the middle of a sealed state. */
export function changed(state) {
  const place = Math.floor(state.length / 2);
  const other = state[place] === "A" ? "B" : "A";
  return state.slice(0, place) + other + state.slice(place + 1);
}

/** The request of a leg as a curl command. The token is a variable, so that it is not copied. */
export function asCurl(leg, origin, body, headers, needsToken) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl -sS ${quoted(new URL("mcp", origin).href)}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (needsToken) lines.push('-H "Authorization: Bearer $TOKEN"');
  lines.push(`-d ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

/** The request of a leg as a Python program. */
export function asPython(leg, origin, body, headers, needsToken) {
  const shown = Object.entries(headers).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (needsToken) shown.push('    "Authorization": "Bearer " + os.environ["TOKEN"],');
  return [
    ...(needsToken ? ["import os"] : []),
    "import urllib.request",
    "",
    `body = ${JSON.stringify(body)}.encode()`,
    "headers = {",
    ...shown,
    "}",
    `request = urllib.request.Request(${JSON.stringify(new URL("mcp", origin).href)}, body, headers)`,
    "print(urllib.request.urlopen(request).read().decode())",
  ].join("\n");
}

/** Arguments as the user typed them. */
export function argumentsOf(text) {
  return new Exact(text);
}
