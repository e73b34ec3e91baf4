// The processes of `gateway dev`: what they do, and orders to them.

import { Replica, clock, html } from "./view.js";

const POLL_MS = 1000;
const FRAGMENT = "#fleet=";
const STORED = "fleet";

/** Return the token of the run, which is in the address that `gateway dev` printed. This tab keeps it for a reload; the address does not. */
export function tokenOfRun() {
  if (location.hash.startsWith(FRAGMENT)) {
    sessionStorage.setItem(STORED, location.hash.slice(FRAGMENT.length));
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(STORED) ?? "";
}

/** Reads and controls the processes. Their parent answers, so it works while all replicas are down. */
export class FleetControl {
  constructor(token, onChange) {
    this.state = null;
    this.said = "";
    /** Since when each replica holds calls that wait for their users. */
    this.heldSince = new Map();
    this._orders = 0;
    this._isLost = false;
    this._onChange = onChange;
    this._token = token;
  }

  /** Read the state every second while the page is visible. */
  async start() {
    for (;;) {
      if (document.visibilityState === "visible") await this.read();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  async read() {
    const orders = this._orders;
    try {
      const state = await this._send("GET", "");
      if (orders === this._orders) this._take(state); // the answer to an order is newer
      if (this._isLost) this.said = "";
      this._isLost = false;
    } catch (error) {
      this.said = error.message;
      this._isLost = true;
    }
    this._onChange();
  }

  /** Give an order, such as "/replicas/r1/kill". */
  async order(path) {
    try {
      const state = await this._send("POST", path);
      this._orders += 1;
      this.said = state.said ?? "";
      this._take(state);
    } catch (error) {
      this.said = error.message;
    }
    this._onChange();
  }

  isReady(id) {
    return this._holders(this.state).some((process) => process.id === id && process.state === "ready");
  }

  _take({ said: _, ...state }) {
    this.state = state;
    const holding = this._holders(state).filter((process) => process.held > 0).map((process) => process.id);
    this.heldSince = new Map(holding.map((id) => [id, this.heldSince.get(id) ?? Date.now()]));
  }

  /** The processes that may hold calls. */
  _holders(state) {
    return [...(state?.replicas ?? []), ...(state?.holders ?? [])];
  }

  async _send(method, path) {
    return ask(method, path, { "X-Fleet-Token": this._token });
  }
}

async function ask(method, path, headers) {
  const response = await fetch(`playground/fleet${path}`, { method, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `HTTP ${response.status}`);
  return body;
}

/** The fleet panel. */
export function Fleet({ app }) {
  const fleet = app.fleet;
  const state = fleet?.state;
  if (!state) return html`<p class="empty">${fleet?.said || "Reading the state of the processes …"}</p>`;
  return html`<section class="fleet" aria-label="fleet">
    <div class="row"><h2>Fleet</h2><span class="grow"></span>
      <button type="button" class="quiet" onClick=${() => fleet.order("/replicas")}>Add a replica</button></div>
    <ul class="processes">
      ${state.replicas.map((replica) => html`<${Process} key=${replica.id} of=${replica} kind="replicas" fleet=${fleet} />`)}
      ${state.holders.map((holder) => html`<${Process} key=${holder.id} of=${holder} kind="holders" fleet=${fleet} />`)}
      ${state.workers.map((worker) => html`<${Process} key=${worker.id} of=${worker} kind="workers" fleet=${fleet} />`)}
    </ul>
    <dl class="facts">
      <dt>Task store</dt><dd>${state.store.state}</dd>
      ${state.keys.length > 0 && html`<dt>Seal keys</dt><dd>${state.keys.map((key) => html`<span class="chip">${key.id} ${key.role}</span> `)}
        <button type="button" class="quiet" onClick=${() => fleet.order("/keys/rotate")}>Next step of a rotation</button></dd>`}
      ${state.release !== null && html`<dt>Release</dt><dd>${state.release} <button type="button" class="quiet" onClick=${() => fleet.order("/release")}>Roll out release ${3 - state.release}</button></dd>`}
    </dl>
    <p class="said" role="status">${fleet.said}</p>
  </section>`;
}

function Process({ of, kind, fleet }) {
  const order = (what) => () => fleet.order(`/${kind}/${of.id}/${what}`);
  const runs = of.state === "ready" || of.state === "starting";
  return html`<li class="process ${of.state}">
    <${Replica} id=${of.id} />
    <span class="state">${of.state}</span>
    <span class="quiet-text">${of.pid ? `pid ${of.pid}` : ""}</span>
    ${of.legs !== undefined && runs && html`<span class="numbers" title="requests in flight, legs, legs handed over">${of.inFlight} in flight · ${of.legs} ${of.legs === 1 ? "leg" : "legs"} · ${of.shed} shed</span>`}
    ${of.held > 0 && runs && html`<span class="chip" title="calls of other servers that wait here for their users; they are lost with the process">holds ${of.held} since ${clock(fleet.heldSince.get(of.id))}</span>`}
    <span class="grow"></span>
    ${runs
      ? html`<button type="button" class="quiet" aria-label=${`stop ${of.id}`} onClick=${order("stop")}>Stop</button>
          <button type="button" class="danger" aria-label=${`kill ${of.id}`} onClick=${order("kill")}>Kill</button>`
      : html`<button type="button" class="quiet" disabled=${of.state === "stopping"} aria-label=${`start ${of.id}`} onClick=${order("start")}>Start</button>`}
  </li>`;
}
