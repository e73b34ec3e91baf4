// The list of tools, and the form of the chosen one. Prompts and resources use the same list.

import { argumentsOf } from "./calls.js";
import { parse, stringify } from "./exact.js";
import { ObjectForm } from "./forms.js";
import { initialObject, problems, resolve } from "./schema.js";
import { Json, Safe, html, useEffect, useMemo, useRef, useState } from "./view.js";
import { paramHeaders } from "./wire.js";

const ROW = 52;
const SPARE = 6;

/** A list with search that draws only the rows in sight. */
export function List({ label, entries, chosen, choose, name = (entry) => entry.name }) {
  const [wanted, setWanted] = useState("");
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = useMemo(() => entries.map((entry) => `${name(entry)} ${entry.title ?? ""} ${entry.description ?? ""}`.toLowerCase()), [entries]);
  const found = useMemo(() => entries.filter((_, number) => words.every((word) => texts[number].includes(word))), [texts, wanted]);
  const height = box.current?.clientHeight || 600;
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const last = Math.min(found.length, Math.ceil((top + height) / ROW) + SPARE);
  const place = found.findIndex((entry) => name(entry) === chosen);
  const step = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, Home: -found.length, End: found.length }[event.key];
    if (by === undefined || found.length === 0) return;
    event.preventDefault();
    const next = Math.min(found.length - 1, Math.max(0, place + by));
    choose(name(found[next]));
    box.current.scrollTop = Math.max(0, next * ROW - height / 2);
  };
  return html`<div class="list">
    <input type="search" placeholder=${`Search ${entries.length} ${label}`} aria-label=${`search ${label}`} value=${wanted}
      onInput=${(event) => { setWanted(event.currentTarget.value); box.current.scrollTop = 0; setTop(0); }} />
    <div class="rows" ref=${box} role="listbox" tabindex="0" aria-label=${label} onKeyDown=${step}
      aria-activedescendant=${place >= first && place < last ? `row-${label}-${place}` : undefined}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <div role="presentation" style=${{ height: `${found.length * ROW}px`, position: "relative" }}>
        ${found.slice(first, last).map((entry, offset) => html`<div key=${name(entry)} id=${`row-${label}-${first + offset}`} role="option"
          class="entry" aria-setsize=${found.length} aria-posinset=${first + offset + 1} aria-selected=${name(entry) === chosen} style=${{ top: `${(first + offset) * ROW}px` }} onClick=${() => choose(name(entry))}>
          <strong>${entry.title ?? name(entry)}</strong><span>${firstLine(entry.description ?? "")}</span></div>`)}
      </div>
    </div>
    ${found.length === 0 && html`<p class="empty">Nothing matches.</p>`}
  </div>`;
}

function firstLine(text) {
  return String(text).split("\n", 1)[0];
}

const HINTS = {
  readOnlyHint: ["only reads", "changes things"],
  destructiveHint: ["may destroy", "does not destroy"],
  idempotentHint: ["can be repeated", null],
  openWorldHint: ["reaches other systems", null],
};

/** The tools panel. */
export function Tools({ app }) {
  const tools = app.lists.tools;
  const chosen = tools.find((tool) => tool.name === app.chosenTool) ?? tools[0];
  return html`<div class="two">
    <${List} label="tools" entries=${tools} chosen=${chosen?.name} choose=${(name) => app.choose("chosenTool", name)} />
    ${chosen ? html`<${Safe} key=${chosen.name}><${ToolForm} tool=${chosen} app=${app} /><//>` : html`<p class="empty">There are no tools that you may call.</p>`}
  </div>`;
}

/** How an entry is described, whatever its kind. */
export function About({ entry, app }) {
  const hints = Object.entries(entry.annotations ?? {}).flatMap(([name, value]) => HINTS[name]?.[value === true ? 0 : 1] ?? []);
  const upstream = app.upstreamOf(entry);
  return html`<header>
    <h2>${entry.title ?? entry.name}</h2>
    <div class="row">
      ${entry.title && html`<code>${entry.name}</code>`}
      ${upstream && html`<span class="chip" title="served by another MCP server">from ${upstream}</span>`}
      ${hints.map((hint) => html`<span class="chip">${hint}</span>`)}
    </div>
    ${entry.description && html`<p class="description">${entry.description}</p>`}
  </header>`;
}

function ToolForm({ tool, app }) {
  const schema = tool.inputSchema ?? { type: "object" };
  const [text, setText] = useState(() => app.drafts.get(tool.name) ?? stringify(initialObject(resolve(schema, schema), schema), "  "));
  const [found, setFound] = useState({});
  const [state, setState] = useState("");
  useEffect(() => { app.drafts.set(tool.name, text); }, [text]);
  const order = () => {
    let args;
    try {
      args = parse(text);
    } catch {
      return null;
    }
    const wrong = problems(args, schema, schema);
    setFound(wrong);
    if (Object.keys(wrong).length > 0) return null;
    return { method: "tools/call", params: { name: tool.name, arguments: argumentsOf(stringify(args)) }, title: tool.title ?? tool.name, headers: paramHeaders(schema, args) };
  };
  const call = (event) => {
    event.preventDefault();
    const made = order();
    if (made !== null) app.calls.start(made, { replica: app.chosenReplica });
  };
  const resume = () => {
    const made = order();
    if (made !== null && state.trim()) app.calls.resume(made, state.trim(), { replica: app.chosenReplica });
  };
  return html`<section class="panel" aria-label=${`tool ${tool.name}`}>
    <${About} entry=${tool} app=${app} />
    <form onSubmit=${call}>
      <${ObjectForm} schema=${schema} text=${text} change=${setText} problems=${found} />
      <div class="row"><button type="submit" class="primary">Call${app.chosenReplica ? ` on ${app.chosenReplica}` : ""}</button><${Where} app=${app} /></div>
    </form>
    <details><summary>Continue from a copied state</summary>
      <p class="quiet-text">A call can continue anywhere: paste its state here. The arguments above must be those of the call.</p>
      <textarea rows="3" class="code" aria-label="a copied state" value=${state} onInput=${(event) => setState(event.currentTarget.value)}></textarea>
      <button type="button" class="quiet" onClick=${resume}>Continue</button>
    </details>
    ${tool.outputSchema && html`<details><summary>Output schema</summary><${Json} value=${tool.outputSchema} /></details>`}
    <details><summary>The schema and the whole entry</summary><${Json} value=${tool} /></details>
  </section>`;
}

/** Chooses the replica of the next request. Without a fleet, the balancer chooses. */
export function Where({ app }) {
  const replicas = app.fleet?.state?.replicas ?? [];
  if (replicas.length === 0) return null;
  return html`<label class="inline">Send to <select value=${app.chosenReplica ?? ""} onChange=${(event) => app.choose("chosenReplica", event.currentTarget.value || null)}>
    <option value="">the next replica</option>
    ${replicas.map((replica) => html`<option value=${replica.id} disabled=${replica.state !== "ready"}>${replica.id}${replica.state === "ready" ? "" : ` (${replica.state})`}</option>`)}
  </select></label>`;
}
