import assert from "node:assert/strict";
import test from "node:test";
import { Follower } from "../../../gateway/web/playground/static/tasks.js";

const QUESTIONS = { name: { method: "elicitation/create", params: {} } };

function told(status, second, more = {}) {
  return { taskId: "t_1", status, createdAt: at(0), lastUpdatedAt: at(second), ...more };
}

function at(second) {
  return new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString();
}

/** A follower whose stream says what a test says, and whose `tasks/get` is answered when a test answers it. */
function follow() {
  let say;
  const reads = [];
  const client = {
    request: (_method, _params, { onMessage, signal }) =>
      new Promise((_resolve, reject) => {
        say = (params) => onMessage({ method: "notifications/tasks", params });
        signal.addEventListener("abort", () => reject(new DOMException("closed", "AbortError")));
      }),
    result: (method) => (method === "tasks/get" ? new Promise((resolve) => reads.push(resolve)) : Promise.resolve({})),
  };
  const follower = new Follower(client, { onChange: () => {}, onList: () => {} });
  return { follower, reads, say: (params) => say(params), task: () => follower.tasks.get("t_1") };
}

test("a reading that arrives after the end of its task does not take the end back", async () => {
  for (const ended of ["completed", "failed", "cancelled"]) {
    const seen = follow();
    seen.follower.add(told("input_required", 1, { inputRequests: QUESTIONS }), "Echo");
    const done = seen.follower.answer(seen.task(), { name: {} });
    while (seen.reads.length === 0) await new Promise((resolve) => setTimeout(resolve, 0));
    seen.say(told(ended, 3));
    seen.reads[0](told("working", 2));
    await done;
    assert.equal(seen.task().status, ended);
    seen.say(told("working", 3));
    assert.equal(seen.task().status, ended);
    seen.follower.clear();
  }
});

test("an older reading changes nothing, and the newest one removes the answered questions", async () => {
  const seen = follow();
  seen.follower.add(told("working", 1), "Echo");
  seen.say(told("input_required", 3, { inputRequests: QUESTIONS }));
  seen.say(told("working", 2));
  assert.deepEqual(seen.task().inputRequests, QUESTIONS);
  seen.say(told("working", 4));
  assert.equal(seen.task().inputRequests, undefined);
  assert.equal(seen.task().title, "Echo");
  seen.follower.clear();
});

test("a task that the stream knows first keeps its state and gets its title", () => {
  const seen = follow();
  seen.follower.add(told("completed", 3, { result: {} }));
  seen.follower.add(told("working", 1), "Echo");
  assert.equal(seen.task().status, "completed");
  assert.equal(seen.task().title, "Echo");
  seen.follower.clear();
});

test("a reading that arrives after the caller has left shows nothing", async () => {
  const seen = follow();
  seen.follower.add(told("working", 1), "Echo");
  const done = seen.follower.refresh(seen.task());
  seen.follower.clear();
  seen.reads[0](told("completed", 2, { result: {} }));
  await done;
  assert.equal(seen.follower.tasks.size, 0);
});
