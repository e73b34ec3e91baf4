// Questions as forms: elicitation with a form or a URL, sampling, and roots.

import { parse, stringify } from "./exact.js";
import { Block } from "./content.js";
import { ObjectForm } from "./forms.js";
import { initialObject, problems, resolve } from "./schema.js";
import { Json, Link, focusAround, html, own, useState, webUrl } from "./view.js";

const DECLINE = { action: "decline" };
const DISMISS = { action: "cancel" };

/** Return the answer that a question starts with. */
function draft(question) {
  const params = question.params ?? {};
  switch (question.method) {
    case "elicitation/create":
      if (params.mode === "url") return { action: "accept" };
      return { action: "accept", text: stringify(initialObject(resolve(params.requestedSchema ?? {}, params.requestedSchema), params.requestedSchema), "  ") };
    case "sampling/createMessage":
      return { text: "", model: "a person at the playground" };
    default:
      return { text: "file:///project" };
  }
}

/** Return the response to a question, or throw why there is none. */
function response(question, answer) {
  if (question.method === "sampling/createMessage") {
    return { role: "assistant", content: { type: "text", text: answer.text }, model: answer.model, stopReason: "endTurn" };
  }
  if (question.method === "roots/list") {
    const lines = answer.text.split("\n").map((line) => line.trim()).filter(Boolean);
    return { roots: lines.map((uri) => ({ uri })) };
  }
  if (answer.action !== "accept" || answer.text === undefined) return { action: answer.action };
  return { action: "accept", content: parse(answer.text) };
}

/**
 * The questions of a leg or a task.
 *
 * @param send gets the answers by key, as the protocol writes them.
 * @param extra more buttons.
 */
export function Questions({ questions, send, isBusy = false, given = {}, extra = null, label = "Answer" }) {
  const keys = Object.keys(questions);
  const [answers, setAnswers] = useState(() => Object.fromEntries(keys.map((key) => [key, redraft(questions[key], own(given, key))])));
  const [shownProblems, setShownProblems] = useState({});
  const set = (key, answer) => setAnswers((all) => ({ ...all, [key]: answer }));
  const collected = () => {
    const found = Object.create(null);
    const responses = Object.create(null);
    for (const key of keys) {
      const question = questions[key];
      const answer = own(answers, key) ?? draft(question);
      try {
        responses[key] = response(question, answer);
        if (answer.action === "accept" && answer.text !== undefined) {
          const schema = question.params?.requestedSchema ?? {};
          const wrong = problems(responses[key].content, schema, schema);
          if (Object.keys(wrong).length > 0) found[key] = wrong;
        }
      } catch (error) {
        found[key] = { "": error.message };
      }
    }
    setShownProblems(found);
    return Object.keys(found).length === 0 ? responses : null;
  };
  const submit = (event) => {
    event.preventDefault();
    const responses = collected();
    if (responses === null) return;
    focusAround(event, "article");
    send(responses);
  };
  const all = (event, answer) => {
    focusAround(event, "article");
    send(refusals(answer));
  };
  const refusals = (answer) => Object.fromEntries(keys.map((key) => [key, refusal(questions[key], answer)]));
  return html`<form class="questions" onSubmit=${submit} aria-label="questions">
    ${keys.map((key) => html`<${Question} key=${key} name=${key} question=${questions[key]} answer=${own(answers, key) ?? draft(questions[key])}
      change=${(answer) => set(key, answer)} problems=${own(shownProblems, key) ?? {}} />`)}
    <div class="row">
      <button type="submit" disabled=${isBusy}>${label}</button>
      <button type="button" class="quiet" disabled=${isBusy} onClick=${(event) => all(event, DECLINE)}>Decline</button>
      <button type="button" class="quiet" disabled=${isBusy} onClick=${(event) => all(event, DISMISS)}>Dismiss</button>
      ${extra?.(collected)}
    </div>
  </form>`;
}

/** Return the draft of an answer that was given before. */
function redraft(question, response) {
  const fresh = draft(question);
  if (response === undefined) return fresh;
  if (question.method === "sampling/createMessage") return { ...fresh, text: response.content?.text ?? "" };
  if (question.method === "roots/list") return { text: (response.roots ?? []).map((root) => root.uri).join("\n") };
  return response.content === undefined ? fresh : { ...fresh, text: stringify(response.content, "  ") };
}

/** Return how a question is declined. Only elicitation has an answer for that; other questions have an empty result. */
function refusal(question, answer) {
  if (question.method === "elicitation/create") return answer;
  if (question.method === "roots/list") return { roots: [] };
  return { role: "assistant", content: { type: "text", text: "" }, model: "none", stopReason: answer.action };
}

function Question({ name, question, answer, change, problems: wrong }) {
  const params = question.params ?? {};
  return html`<section class="question" aria-label=${`question ${name}`}>
    <div class="row"><span class="chip ask">${kindName(question)}</span><code class="key">${name}</code></div>
    ${params.message && html`<p class="ask-text">${params.message}</p>`}
    <${Body} ...${{ question, params, answer, change, wrong }} />
    ${wrong[""] && html`<small class="problem" role="alert">${wrong[""]}</small>`}
  </section>`;
}

function kindName(question) {
  if (question.method === "sampling/createMessage") return "asks for a completion";
  if (question.method === "roots/list") return "asks for roots";
  return question.params?.mode === "url" ? "asks to open a page" : "asks";
}

function Body({ question, params, answer, change, wrong }) {
  if (question.method === "sampling/createMessage") {
    return html`<div>
      ${params.systemPrompt && html`<p class="quiet-text">${params.systemPrompt}</p>`}
      ${(params.messages ?? []).map((message, place) => html`<div class="message" key=${place}><span class="chip">${message.role}</span>
        ${[message.content].flat().map((block) => html`<${Block} block=${block} />`)}</div>`)}
      <label>Completion<textarea rows="3" value=${answer.text} onInput=${(event) => change({ ...answer, text: event.currentTarget.value })}></textarea></label>
    </div>`;
  }
  if (question.method === "roots/list") {
    return html`<label>Roots, one URI a line<textarea rows="3" class="code" value=${answer.text}
      onInput=${(event) => change({ ...answer, text: event.currentTarget.value })}></textarea></label>`;
  }
  if (params.mode === "url") {
    const host = webUrl(params.url)?.host;
    return html`<div><p>It wants you to open this address:</p><p class="address"><${Link} href=${params.url ?? ""} /></p>
      <p class="quiet-text">${host ? html`Open it only if you know the host <strong>${host}</strong>. Then answer.` : "It is not an address that this page opens."}</p></div>`;
  }
  const schema = params.requestedSchema;
  if (schema === undefined) return html`<${Json} value=${params} />`;
  return html`<${ObjectForm} schema=${schema} text=${answer.text} problems=${wrong} change=${(text) => change({ ...answer, text })} />`;
}
