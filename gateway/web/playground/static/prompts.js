// Prompts and resources.

import { List, About, Where } from "./tools.js";
import { Safe, html, own, useRef, useState } from "./view.js";

/** The prompts panel. */
export function Prompts({ app }) {
  const prompts = app.lists.prompts;
  const chosen = prompts.find((prompt) => prompt.name === app.chosenPrompt) ?? prompts[0];
  if (chosen === undefined) return html`<p class="empty">This server has no prompts.</p>`;
  return html`<div class="two">
    <${List} label="prompts" entries=${prompts} chosen=${chosen.name} choose=${(name) => app.choose("chosenPrompt", name)} />
    <${Safe} key=${chosen.name}><${PromptForm} prompt=${chosen} app=${app} /><//>
  </div>`;
}

function PromptForm({ prompt, app }) {
  const [given, setGiven] = useState({});
  const names = Array.isArray(prompt.arguments) ? prompt.arguments : [];
  const missing = names.filter((each) => each.required && !own(given, each.name));
  const get = (event) => {
    event.preventDefault();
    app.calls.start({ method: "prompts/get", params: { name: prompt.name, arguments: given }, title: prompt.title ?? prompt.name }, { replica: app.chosenReplica });
  };
  return html`<section class="panel" aria-label=${`prompt ${prompt.name}`}>
    <${About} entry=${prompt} app=${app} />
    <form onSubmit=${get}>
      ${names.map((each) => html`<${Completed} key=${each.name} label=${each.title ?? each.name} name=${each.name} isRequired=${each.required} help=${each.description}
        value=${own(given, each.name) ?? ""} change=${(text) => setGiven({ ...given, [each.name]: text })}
        complete=${(typed) => app.complete({ type: "ref/prompt", name: prompt.name }, each.name, typed, given)} />`)}
      <div class="row"><button type="submit" class="primary" disabled=${missing.length > 0}>Get the prompt</button><${Where} app=${app} /></div>
    </form>
  </section>`;
}

let ids = 0;

/** A text field that suggests values while the user types. */
function Completed({ label, isRequired, help, value, change, complete }) {
  const [id] = useState(() => `completed-${++ids}`);
  const [found, setFound] = useState([]);
  const newest = useRef("");
  const input = async (event) => {
    const typed = (newest.current = event.currentTarget.value);
    change(typed);
    const values = await complete(typed);
    if (typed === newest.current) setFound(values); // an answer to earlier text may come later
  };
  return html`<div class="field">
    <label for=${id}>${label}${isRequired && html`<span class="required" title="required"> *</span>`}</label>
    <input id=${id} list=${`${id}-list`} autocomplete="off" value=${value} onInput=${input} onFocus=${input} />
    <datalist id=${`${id}-list`}>${found.map((text) => html`<option value=${text} />`)}</datalist>
    ${help && html`<small class="help">${help}</small>`}
  </div>`;
}

/** The resources panel. */
export function Resources({ app }) {
  const entries = [...app.lists.resources, ...app.lists.templates];
  const key = (entry) => entry.uri ?? entry.uriTemplate;
  const chosen = entries.find((entry) => key(entry) === app.chosenResource) ?? entries[0];
  if (chosen === undefined) return html`<p class="empty">This server has no resources.</p>`;
  return html`<div class="two">
    <${List} label="resources" entries=${entries} name=${key} chosen=${key(chosen)} choose=${(uri) => app.choose("chosenResource", uri)} />
    <${Safe} key=${key(chosen)}><${ResourceForm} entry=${chosen} app=${app} /><//>
  </div>`;
}

const VARIABLE = /\{[+#./;?&]?([A-Za-z0-9_.,%*]+)\}/g;

function variablesOf(template) {
  return [...new Set([...template.matchAll(VARIABLE)].flatMap((found) => found[1].split(",")).map((name) => name.replace("*", "")))];
}

/** Fill in a template of simple variables (RFC 6570 levels 1 and 2). */
export function filled(template, values) {
  return template.replaceAll(VARIABLE, (expression, names) =>
    names.split(",").map((name) => {
      const value = own(values, name.replace("*", "")) ?? "";
      return expression.startsWith("{+") ? encodeURI(value) : encodeURIComponent(value);
    }).join(","));
}

function ResourceForm({ entry, app }) {
  const [given, setGiven] = useState({});
  const names = entry.uriTemplate === undefined ? [] : variablesOf(entry.uriTemplate);
  const uri = entry.uri ?? filled(entry.uriTemplate, given);
  const isWatched = app.watched.has(uri);
  const read = (event) => {
    event.preventDefault();
    app.calls.start({ method: "resources/read", params: { uri }, title: entry.title ?? entry.name ?? uri }, { replica: app.chosenReplica });
  };
  return html`<section class="panel" aria-label=${`resource ${uri}`}>
    <${About} entry=${entry} app=${app} />
    <form onSubmit=${read}>
      ${names.map((name) => html`<${Completed} key=${name} label=${name} isRequired=${true} value=${own(given, name) ?? ""}
        change=${(text) => setGiven({ ...given, [name]: text })}
        complete=${(typed) => app.complete({ type: "ref/resource", uri: entry.uriTemplate }, name, typed, given)} />`)}
      <p><code>${uri}</code> <span class="quiet-text">${entry.mimeType ?? ""}</span></p>
      <div class="row">
        <button type="submit" class="primary" disabled=${names.some((name) => !own(given, name))}>Read</button>
        <button type="button" class="quiet" aria-pressed=${isWatched} onClick=${() => app.watch(uri)}>${isWatched ? "Stop watching" : "Watch for changes"}</button>
        <${Where} app=${app} />
      </div>
      ${isWatched && app.follower.heard && html`<p class="quiet-text" role="status">${app.follower.heard.has(uri) ? "The server announces its changes." : "The server does not announce its changes."}</p>`}
    </form>
  </section>`;
}
