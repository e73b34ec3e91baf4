// A call as a timeline: one row for each leg, with the replica that ran it.

import { asCurl, asPython } from "./calls.js";
import { Problem, Result } from "./content.js";
import { Questions } from "./questions.js";
import { Copy, Json, Replica, Safe, clock, duration, focusAround, html, shown, size, useState } from "./view.js";
import { headersOf, message } from "./wire.js";

const OUTCOMES = {
  running: "running",
  asks: "asked",
  shed: "handed over",
  task: "became a task",
  done: "done",
  failed: "tool error",
  refused: "refused",
  lost: "no answer",
  cancelled: "cancelled",
};

/** All calls of the page. */
export function Timeline({ app }) {
  const calls = app.calls.list;
  if (calls.length === 0) return html`<p class="empty">Calls appear here. Choose a tool and call it.</p>`;
  return html`<div class="calls" tabindex="-1">${calls.map((call) => html`<${CallView} key=${call.id} call=${call} app=${app} />`)}</div>`;
}

function CallView({ call, app }) {
  const ran = call.legs.map((leg) => leg.replica).filter(Boolean);
  const replicas = ran.filter((id, place) => id !== ran[place - 1]);
  return html`<article class="call" tabindex="-1" aria-label=${`call ${call.id} of ${call.title}`}>
    <header class="row">
      <h3>${call.title}</h3>
      <span class="chip outcome ${call.last.kind}" role="status">${OUTCOMES[call.last.kind]}</span>
      <span class="quiet-text">${clock(call.startedAt)}</span>
      <span class="hops">${replicas.map((id, place) => html`${place > 0 && html`<span class="arrow" aria-label="then">→</span>`}<${Replica} id=${id} />`)}</span>
      <span class="grow"></span>
      ${call.isRunning && html`<button type="button" class="quiet" onClick=${(event) => { focusAround(event, "article"); app.calls.cancel(call); }}>Cancel</button>`}
      <button type="button" class="quiet" aria-label=${`remove call ${call.id}`} onClick=${(event) => { focusAround(event, ".calls"); app.calls.remove(call); }}>Remove</button>
    </header>
    <ol class="legs">${call.legs.map((leg) => html`<${LegView} key=${leg.number} leg=${leg} call=${call} app=${app} />`)}</ol>
  </article>`;
}

function LegView({ leg, call, app }) {
  const isLast = leg === call.last;
  return html`<li class="leg ${leg.kind}">
    <div class="row">
      <span class="dot" aria-hidden="true"></span>
      <strong>Leg ${leg.number}</strong>
      ${leg.replica ? html`<${Replica} id=${leg.replica} />` : leg.wanted && html`<span class="quiet-text">to ${leg.wanted}</span>`}
      <span class="chip outcome ${leg.kind} ${isLast ? "" : "past"}">${OUTCOMES[leg.kind]}</span>
      <span class="quiet-text">${duration(leg.ms)}</span>
      ${leg.state !== null && html`<span class="quiet-text" title="what the client carries to the next leg, encrypted">state ${size(leg.stateBytes)}</span>`}
      ${leg.note && html`<em class="quiet-text">${leg.note}</em>`}
    </div>
    <${Safe}>
      <${Given} leg=${leg} />
      <${Events} leg=${leg} />
      <${Outcome} leg=${leg} call=${call} app=${app} isLast=${isLast} />
    <//>
    <${Actions} leg=${leg} call=${call} app=${app} />
  </li>`;
}

function Given({ leg }) {
  const keys = Object.keys(leg.answers);
  if (keys.length === 0) return null;
  return html`<p class="given">Answered ${keys.map((key) => html`<code>${key}</code>: <span>${brief(leg.answers[key])}</span> `)}</p>`;
}

function brief(answer) {
  if (answer.action !== undefined && answer.action !== "accept") return answer.action === "decline" ? "declined" : "dismissed";
  const text = shown(answer.content ?? answer.roots ?? "accepted").replaceAll(/\s+/g, " ");
  return text.length > 120 ? `${text.slice(0, 120)} …` : text;
}

function Events({ leg }) {
  const { progress, events, heard } = leg;
  if (progress === null && heard === 0) return null;
  return html`<div class="events">
    ${progress && html`<div class="row"><progress value=${progress.done} max=${progress.total ?? undefined} aria-label="progress"></progress>
      <span class="quiet-text">${progress.done}${progress.total !== undefined && ` of ${progress.total}`} ${progress.message ?? ""}</span></div>`}
    ${heard > events.length && html`<p class="quiet-text">The newest ${events.length} of ${heard} messages</p>`}
    ${heard > 0 && html`<ul class="logs">${events.map((event) => html`<li><span class="quiet-text">${clock(event.at)}</span>
      ${event.type === "log" ? html`<span class="chip">${event.level}</span> <span>${shown(event.data)}</span>` : html`<code>${event.method}</code>`}</li>`)}</ul>`}
  </div>`;
}

function Outcome({ leg, call, app, isLast }) {
  const [again, setAgain] = useState(false);
  switch (leg.kind) {
    case "asks":
      if (!isLast && !again) {
        return html`<p class="given">It asked: ${Object.entries(leg.questions).map(([key, question]) => html`<span>${question.params?.message ?? ""} <code>${key}</code></span> `)}
          <button type="button" class="quiet" onClick=${() => setAgain(true)}>Answer differently</button></p>`;
      }
      return html`<${Whereabouts} leg=${leg} call=${call} app=${app} /><${Questions} questions=${leg.questions} isBusy=${call.isRunning} given=${call.answersTo(leg)}
        send=${(answers) => { setAgain(false); app.calls.answer(call, leg, answers, { replica: app.chosenReplica }); }}
        label=${app.chosenReplica ? `Answer on ${app.chosenReplica}` : "Answer"}
        extra=${(collect) => html`<button type="button" class="quiet" title="change one character of the sealed state, and see what the gateway says"
          onClick=${() => { const answers = collect(); if (answers !== null) app.calls.tamper(call, leg, answers, { replica: app.chosenReplica }); }}>Tamper with the state</button>`} />`;
    case "done":
    case "failed":
      return html`<${Result} result=${leg.result} />`;
    case "task":
      return html`<p class="given">The call continues as the task <code>${leg.result.taskId}</code>. <button type="button" class="quiet" onClick=${() => app.show("tasks")}>Show tasks</button></p>`;
    case "refused":
    case "lost":
      return html`<${Problem} error=${leg.error} status=${leg.status} challenge=${leg.challenge} />
        ${leg.kind === "lost" && html`<p class="quiet-text">Nobody answered. Send the leg again: another replica can run it.</p>`}`;
    default:
      return null;
  }
}

/** Where a call is while its question waits: nowhere but in this page, unless another server waits in the middle of it. */
function Whereabouts({ leg, call, app }) {
  const isUpstreams = call.title.includes("__");
  const holders = isUpstreams ? [...(app.fleet?.heldSince ?? [])] : [];
  const isGone = app.fleet?.state && leg.replica && !app.fleet.isReady(leg.replica);
  return html`<p class="given">
    ${isGone && html`<strong class="problem">${leg.replica} is not running any more.</strong>`}
    ${holders.length > 0 && html` The server waits in the middle of its call, held by ${holders.map(([id, since], place) => html`${place > 0 && " or "}<${Replica} id=${id} /> since ${clock(since)}`)}.`}
    ${" "}${isUpstreams
      ? html`This page has ${size(leg.stateBytes)} of sealed state. Any replica can take the answer${holders.length > 0 && ", while that one runs"}.`
      : html`The call waits in this page alone: ${size(leg.stateBytes)} of sealed state. Any replica can continue it.`}
  </p>`;
}

function Actions({ leg, call, app }) {
  if (leg.kind === "running") return null;
  const { method, params } = leg.request;
  const body = () => message(leg.number, method, params);
  const headers = () => headersOf(method, params, call.headers);
  const needsToken = app.config.auth === "bearer";
  return html`<details class="actions"><summary>Send again, copy, request and state</summary>
    <div class="row">
      <button type="button" class="quiet" onClick=${() => app.calls.resend(call, leg, { replica: app.chosenReplica })}>Send this leg again${app.chosenReplica ? ` to ${app.chosenReplica}` : ""}</button>
      <${Copy} label="Copy as curl" text=${() => asCurl(leg, document.baseURI, body(), headers(), needsToken)} />
      <${Copy} label="Copy as Python" text=${() => asPython(leg, document.baseURI, body(), headers(), needsToken)} />
      ${leg.state !== null && html`<${Copy} label="Copy the state" text=${leg.state} />`}
    </div>
    ${leg.state !== null && html`<details><summary>The sealed state</summary><pre class="text state" tabindex="0">${leg.state}</pre></details>`}
    <details><summary>The request</summary><${Json} value=${leg.request} /></details>
  </details>`;
}
