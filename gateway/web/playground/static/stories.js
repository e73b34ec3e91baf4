// Three guided stories with the demo tools. Each step says what to do, and what it shows once it has happened.

import { argumentsOf } from "./calls.js";
import { Replica, html, size, stepThrough, useState } from "./view.js";

const BUG = { method: "tools/call", params: { name: "update_work_item", arguments: argumentsOf('{"workItemId":42,"fields":{"System.State":"Resolved"}}') }, title: "update_work_item" };
const REPORT = { method: "tools/call", params: { name: "report", arguments: argumentsOf('{"city":"Bern","sections":12}') }, title: "report" };

const ran = (leg) => html`<${Replica} id=${leg.replica} />`;
const ended = (task) => task !== undefined && ["completed", "failed", "cancelled"].includes(task.status);

/** Return the leg of a call that asked a question with this key, or undefined. */
function asking(call, key) {
  return call?.legs.find((leg) => Object.hasOwn(leg.questions, key));
}

function finished(call) {
  return call?.legs.find((leg) => leg.kind === "done");
}

const STORIES = [
  {
    id: "hop",
    title: "The call that hops",
    needs: "update_work_item",
    about: "A tool asks two questions. Each answer reaches another replica, and no replica remembers the call.",
    steps: [
      {
        text: "Resolve bug 42. The tool has to ask how.",
        label: "Call update_work_item",
        act: (app, memory) => { memory.call = app.calls.start(BUG); },
        done: (app, { call }) => asking(call, "resolution"),
        shows: (app, { call }) => html`${ran(asking(call, "resolution"))} ran the tool, asked, and forgot the call. Everything it had learned is in the
          sealed state that this page holds: ${size(asking(call, "resolution").stateBytes)}, encrypted, and valid only for you and these arguments.`,
      },
      {
        text: "Answer “Duplicate” in the timeline.",
        done: (app, { call }) => asking(call, "duplicate_of"),
        shows: (app, { call }) => html`${ran(asking(call, "duplicate_of"))} opened the state, ran the tool from the top with your answer, and came to the second question.`,
      },
      {
        text: "Answer the second question with any number.",
        done: (app, { call }) => finished(call),
        shows: (app, { call }) => html`Done on ${ran(finished(call))}. The legs ran on ${call.legs.filter((leg) => leg.replica).map((leg, place) => html`${place > 0 ? ", " : ""}${ran(leg)}`)}.
          There was no sticky session and no shared store.`,
      },
    ],
  },
  {
    id: "death",
    title: "The replica that dies between question and answer",
    needs: "update_work_item",
    fleet: true,
    about: "A replica asks, and is killed before you answer. Nothing is lost.",
    steps: [
      {
        text: "Call the same tool.",
        label: "Call update_work_item",
        act: (app, memory) => { memory.call = app.calls.start(BUG); },
        done: (app, { call }) => asking(call, "resolution"),
        shows: (app, { call }) => html`${ran(asking(call, "resolution"))} asked.`,
      },
      {
        text: "Kill that replica, now that it has asked.",
        label: (app, { call }) => `Kill ${asking(call, "resolution")?.replica ?? "it"}`,
        act: (app, memory) => { memory.killed = asking(memory.call, "resolution").replica; app.fleet.order(`/replicas/${memory.killed}/kill`); },
        done: (app, { killed }) => killed !== undefined && !app.fleet.isReady(killed),
        shows: (app, { killed }) => html`<${Replica} id=${killed} /> is dead, and so is everything in its memory. The call lives on: the client carries it.`,
      },
      {
        text: "Answer both questions in the timeline.",
        done: (app, { call }) => finished(call),
        shows: (app, { call, killed }) => html`${ran(finished(call))} finished what <${Replica} id=${killed} /> had begun.`,
      },
      {
        text: "Start the replica again.",
        label: (app, { killed }) => `Start ${killed ?? "it"}`,
        act: (app, { killed }) => app.fleet.order(`/replicas/${killed}/start`),
        done: (app, { killed }) => killed !== undefined && app.fleet.isReady(killed),
        shows: () => "It takes requests again, and needs nothing from before.",
      },
    ],
  },
  {
    id: "worker",
    title: "The task whose worker is killed",
    needs: "report",
    fleet: true,
    tasks: true,
    about: "Work that outlives its call is a task. Its journal is in Redis, so another worker goes on where the first one was killed.",
    steps: [
      {
        text: "Write a report of twelve sections as a task.",
        label: "Call report",
        act: (app, memory) => { memory.call = app.calls.start(REPORT); memory.known = new Set(app.follower.tasks.keys()); },
        done: (app, memory) => taskOf(app, memory)?.progress,
        shows: (app, memory) => html`The task <code>${taskOf(app, memory).taskId.slice(0, 10)}…</code> runs in a worker.`,
      },
      {
        text: "Kill the worker in the middle of it.",
        label: "Kill w1",
        act: (app, memory) => { memory.done = taskOf(app, memory).progress?.progress; app.fleet.order("/workers/w1/kill"); },
        done: (app, memory) => memory.done !== undefined && app.fleet.state?.workers.some((worker) => worker.id === "w1" && worker.state === "killed"),
        shows: (app, memory) => html`The worker is dead after section ${memory.done}. The sections so far are stored.`,
      },
      {
        text: "Start a worker. It takes the task over as soon as the lease of the dead one ends.",
        label: "Start w1",
        act: (app) => app.fleet.order("/workers/w1/start"),
        done: (app, memory) => ended(taskOf(app, memory)),
        shows: () => "The task is finished. No section was written twice. Open the tasks to read it.",
      },
    ],
  },
];

function taskOf(app, { call }) {
  const leg = call?.legs.find((each) => each.kind === "task");
  return leg === undefined ? undefined : app.follower.tasks.get(leg.result.taskId);
}

/** The stories panel. */
export function Stories({ app }) {
  const stories = STORIES.filter((story) => app.lists.tools.some((tool) => tool.name === story.needs) && (!story.fleet || app.fleet) && (!story.tasks || app.config.tasks));
  if (stories.length === 0) return html`<p class="empty">The stories need the demo tools: run <code>gateway dev</code> without --tools.</p>`;
  const story = stories.find((each) => each.id === app.chosenStory) ?? stories[0];
  return html`<section class="panel stories">
    <div class="tabs small" role="tablist" aria-label="stories"
      onKeyDown=${(event) => stepThrough(event, stories.map((each) => each.id), story.id, (id) => app.choose("chosenStory", id))}>${stories.map((each) => html`<button type="button" role="tab" key=${each.id}
      aria-selected=${each === story} tabindex=${each === story ? 0 : -1} onClick=${() => app.choose("chosenStory", each.id)}>${each.title}</button>`)}</div>
    <${Story} key=${story.id} story=${story} app=${app} />
  </section>`;
}

function Story({ story, app }) {
  const [memory, setMemory] = useState(() => app.memoryOf(story.id));
  // A step that has happened stays done: a killed process is started again later.
  let current = memory.reached ?? 0;
  while (current < story.steps.length && story.steps[current].done(app, memory)) current += 1;
  memory.reached = current;
  const begin = () => setMemory(app.forget(story.id));
  return html`<div>
    <h2>${story.title}</h2><p>${story.about}</p>
    <ol class="steps">${story.steps.map((step, number) => {
      const isDone = number < current;
      const label = typeof step.label === "function" ? step.label(app, memory) : step.label;
      return html`<li class=${isDone ? "done" : number === current ? "now" : "later"} aria-current=${number === current ? "step" : undefined}>
        <p>${step.text}</p>
        ${number === current && label && html`<button type="button" class="primary" onClick=${() => { step.act(app, memory); app.redraw(); }}>${label}</button>`}
        ${isDone && html`<p class="shows">${step.shows(app, memory)}</p>`}
      </li>`;
    })}</ol>
    ${current === story.steps.length && html`<div class="row"><strong>That is the whole story.</strong> <button type="button" class="quiet" onClick=${begin}>Tell it again</button></div>`}
  </div>`;
}
