// The view library, and small pieces that all panels share. Everything is text: nothing here makes markup from data.

import { html, render, useEffect, useErrorBoundary, useReducer, useRef, useState } from "./vendor/preact-htm.js";
import { stringify } from "./exact.js";

export { html, render, useEffect, useRef, useState };

/** A list of listeners. */
export class News {
  constructor() {
    this._listeners = new Set();
  }

  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  spread() {
    for (const listener of this._listeners) listener();
  }
}

/** Draw a component again after each change. */
export function useNews(news) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  useEffect(() => news.listen(redraw), [news]);
}

/** Read a member that an object has itself: a name such as `__proto__` is data like any other. */
export function own(object, name) {
  return object !== null && object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;
}

/** Keeps the rest of the page alive if a part of it cannot be drawn. */
export function Safe({ children }) {
  const [error, reset] = useErrorBoundary();
  if (error === undefined) return children;
  return html`<div class="problem-box" role="alert"><strong>This part of the page cannot be shown.</strong>
    <p>${String(error.message)}</p><button type="button" class="quiet" onClick=${reset}>Try again</button></div>`;
}

export const shown = (value) => (typeof value === "string" ? value : stringify(value, "  "));

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
}

export function size(bytes) {
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

/** A stable colour for a replica: the first replicas get the colours that differ most. */
export function tint(replica) {
  if (!/^r/.test(replica ?? "")) return "tint-0";
  const number = Number(/(\d+)$/.exec(replica ?? "")?.[1] ?? 0);
  return `tint-${number % 6}`;
}

export function Replica({ id }) {
  return id ? html`<span class="chip replica ${tint(id)}">${id}</span>` : null;
}

export function Json({ value }) {
  return html`<pre class="json" tabindex="0">${shown(value)}</pre>`;
}

/** A button that copies text, and says so. */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

const WEB = new Set(["http:", "https:"]);

/** Return a URL that may be opened, or null. */
export function webUrl(text) {
  try {
    const url = new URL(text);
    return WEB.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

/** A link that opens elsewhere. It shows its address, with the host as the browser reads it. */
export function Link({ href }) {
  const url = webUrl(href);
  if (url === null) return html`<code>${href}</code>`;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer">${url.href}</a>`;
}
