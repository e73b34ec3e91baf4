// The view library, and small pieces that all panels share. Everything is text: nothing here makes markup from data.

import { html as markup, render, useEffect, useErrorBoundary, useMemo, useReducer, useRef, useState } from "./vendor/preact-htm.js";
import { stringify } from "./exact.js";

export { render, useEffect, useMemo, useRef, useState };

const checked = new WeakSet();

/** Make elements of a template. Every object among their children that is not an element is shown as JSON. */
export function html(...given) {
  return asChild(markup(...given));
}

// Preact takes any object with the members of an element for one. A server can send such objects, but none whose own
// `constructor` is undefined: JSON cannot express that.
function asChild(child) {
  if (Array.isArray(child)) return child.map(asChild);
  if (typeof child === "function") return null;
  if (child === null || typeof child !== "object") return child;
  if (!Object.hasOwn(child, "constructor") || child.constructor !== undefined) return shown(child);
  if (!checked.has(child)) {
    checked.add(child);
    if (child.props.children !== undefined) child.props.children = asChild(child.props.children);
  }
  return child;
}

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

/** Handle the arrow keys of a list of tabs: choose the next or the previous tab, and focus it. */
export function stepThrough(event, ids, chosen, choose) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  const next = (ids.indexOf(chosen) + by + ids.length) % ids.length;
  choose(ids[next]);
  event.currentTarget.querySelectorAll("[role=tab]")[next].focus();
}

/** Keeps the rest of the page alive if a part of it cannot be drawn. */
export function Safe({ children }) {
  const [error, reset] = useErrorBoundary();
  if (error === undefined) return children;
  return html`<div class="problem-box" role="alert"><strong>This part of the page cannot be shown.</strong>
    <p>${String(error.message)}</p><button type="button" class="quiet" onClick=${reset}>Try again</button></div>`;
}

/** Move the focus to what contains a button that is about to vanish. Without this, the keyboard starts at the top again. */
export function focusAround(event, selector) {
  event.currentTarget.closest(selector)?.focus();
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
  // The page is drawn again every second; a large value need not be written every time.
  const text = useMemo(() => shown(value), [value]);
  return html`<pre class="json" tabindex="0">${text}</pre>`;
}

/** A button that copies text, and says so. */
export function Copy({ text, label }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      say("Copied");
    } catch {
      say("This browser does not let the page copy"); // without TLS, browsers offer no clipboard
    }
    setTimeout(() => say(""), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${said || label}</button>`;
}

const WEB = new Set(["http:", "https:"]);

/** Return a URL that may be opened, or null. A user name in front of the host can look like a host, so it may not. */
export function webUrl(text) {
  try {
    const url = new URL(text);
    return WEB.has(url.protocol) && url.username === "" && url.password === "" ? url : null;
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
