import assert from "node:assert/strict";
import test from "node:test";
import { Calls, asCurl, changed } from "../../../gateway/web/playground/static/calls.js";
import { Exact } from "../../../gateway/web/playground/static/exact.js";

const ASKS = { resultType: "input_required", inputRequests: { size: { method: "elicitation/create", params: {} } }, requestState: "s1.AAAABBBBCCCC" };

function client(...results) {
  const sent = [];
  return {
    sent,
    async request(method, params) {
      sent.push({ method, params });
      const next = results.shift();
      if (next instanceof Error) throw next;
      return { status: 200, replica: "r1", ms: 5, challenge: null, message: { result: next } };
    },
  };
}

async function settled(call) {
  while (call.last.kind === "running") await new Promise((resolve) => setTimeout(resolve, 0));
  return call.last;
}

const ORDER = { method: "tools/call", params: { name: "t", arguments: new Exact('{"n":9007199254740993}') }, title: "t" };

test("an answer goes back with the state of its leg and the arguments as they were typed", async () => {
  const wire = client(ASKS, { resultType: "complete", content: [] });
  const calls = new Calls(wire);
  const call = calls.start(ORDER);
  const leg = await settled(call);
  assert.equal(leg.kind, "asks");
  assert(call.isOpen);
  await calls.answer(call, leg, { size: { action: "accept", content: { size: "S" } } });
  assert.equal(call.last.kind, "done");
  assert.equal(wire.sent[1].params.requestState, ASKS.requestState);
  assert.equal(wire.sent[1].params.arguments.text, '{"n":9007199254740993}');
  assert(!call.isOpen);
});

test("another answer to an earlier leg begins another course", async () => {
  const calls = new Calls(client(ASKS, { content: [] }, { content: [] }));
  const call = calls.start(ORDER);
  const first = await settled(call);
  await calls.answer(call, first, {});
  await calls.answer(call, first, {});
  assert.match(call.last.note, /another answer to leg 1/);
  assert.equal(call.legs.length, 3);
});

test("a call that a replica hands over continues by itself", async () => {
  const wire = client({ resultType: "input_required", requestState: "s1.X" }, { content: [] });
  const calls = new Calls(wire);
  const call = calls.start(ORDER);
  await settled(call);
  while (call.last.kind !== "done") await new Promise((resolve) => setTimeout(resolve, 0));
  assert.equal(wire.sent[1].params.requestState, "s1.X");
  assert.equal(wire.sent[1].params.inputResponses, undefined);
});

test("a call that becomes a task is handed on", async () => {
  const tasks = [];
  const calls = new Calls(client({ resultType: "task", taskId: "t_1" }), { onTask: (task) => tasks.push(task.taskId) });
  await settled(calls.start(ORDER));
  assert.deepEqual(tasks, ["t_1"]);
});

test("a lost answer and a cancelled leg are told apart", async () => {
  const cancelled = new Error("aborted");
  cancelled.name = "AbortError";
  const calls = new Calls(client(new Error("Failed to fetch"), cancelled));
  assert.equal((await settled(calls.start(ORDER))).kind, "lost");
  assert.equal((await settled(calls.start(ORDER))).kind, "cancelled");
});

test("a changed state differs in one character", () => {
  const state = "s1.AAAABBBBCCCC";
  const other = changed(state);
  assert.equal([...state].filter((character, place) => character !== other[place]).length, 1);
});

test("a copied command has no token, and quotes what a shell would read", () => {
  const text = asCurl(null, "http://127.0.0.1:8080/", `{"a":"it's"}`, { "Mcp-Name": "t" }, true);
  assert(text.includes(`'{"a":"it'\\''s"}'`));
  assert(text.includes("$TOKEN"));
});

test("cancelling a call ends each of its running legs", async () => {
  const signals = [];
  const wire = {
    request: (_method, _params, { signal }) => new Promise((_resolve, reject) => {
      signals.push(signal);
      signal.addEventListener("abort", () => reject(signal.reason));
    }),
  };
  const calls = new Calls(wire);
  const call = calls.start(ORDER);
  calls.resend(call, call.last);
  calls.cancel(call);
  assert.deepEqual(signals.map((signal) => signal.aborted), [true, true]);
  while (call.isRunning) await new Promise((resolve) => setTimeout(resolve, 0));
  assert.deepEqual(call.legs.map((leg) => leg.kind), ["cancelled", "cancelled"]);
});

test("of ten thousand messages, the newest are kept", async () => {
  const wire = {
    async request(_method, _params, { onMessage }) {
      for (let number = 0; number < 10_000; number += 1) onMessage({ method: "notifications/message", params: { level: "info", data: number } });
      onMessage({ method: "notifications/progress", params: { progress: 1 } });
      return { status: 200, message: { result: {} } };
    },
  };
  const leg = await settled(new Calls(wire).start(ORDER));
  assert.equal(leg.heard, 10_000);
  assert.equal(leg.events.at(-1).data, 9999);
  assert(leg.events.length <= 50);
  assert.equal(leg.progress.done, 1);
});

test("another answer starts from the one that was given", async () => {
  const calls = new Calls(client(ASKS, { content: [] }));
  const call = calls.start(ORDER);
  const first = await settled(call);
  await calls.answer(call, first, { size: { action: "decline" } });
  assert.deepEqual(call.answersTo(first), { size: { action: "decline" } });
});
