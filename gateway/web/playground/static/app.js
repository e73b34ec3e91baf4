// The page: what is shown where, and what all panels share.

import { Calls } from "./calls.js";
import { Problem } from "./content.js";
import { Fleet, FleetControl, tokenOfRun } from "./fleet.js";
import { Prompts, Resources } from "./prompts.js";
import { Stories } from "./stories.js";
import { Follower, Notices, Tasks } from "./tasks.js";
import { Timeline } from "./timeline.js";
import { Tools } from "./tools.js";
import { News, Safe, html, render, stepThrough, useNews, useState } from "./view.js";
import { Client, RpcError } from "./wire.js";

const MOMENT_MS = 16;
const THEMES = ["auto", "light", "dark"];

/** Everything that the panels share. Nothing of it is stored: a token lives as long as the page. */
class App {
  constructor() {
    this.news = new News();
    this.config = null;
    this.token = "";
    this.problem = null;
    this.panel = "tools";
    this.theme = "auto";
    this.lists = { tools: [], prompts: [], resources: [], templates: [] };
    this.upstreams = [];
    this.drafts = new Map();
    this.fleet = null;
    this.chosenReplica = null;
    this.isOpen = false;
    this._drawing = null;
    this._memories = new Map();
    this._readings = 0;
    this._newest = new Map();
    const redraw = () => this.redrawSoon();
    this.client = new Client({ token: () => this.token });
    this.follower = new Follower(this.client, { onChange: redraw, onList: (name) => this.readList(name).catch((error) => this.fail(error)) });
    this.watched = this.follower.uris;
    this.calls = new Calls(this.client, { onChange: redraw, onTask: (task, call) => this.follower.add(task, call.title) });
  }

  redraw() {
    this.news.spread();
  }

  /** Draw the page once for all messages that come within a moment. */
  redrawSoon() {
    this._drawing ??= setTimeout(() => {
      this._drawing = null;
      this.redraw();
    }, MOMENT_MS);
  }

  show(panel) {
    this.panel = panel;
    this.redraw();
  }

  choose(name, value) {
    this[name] = value;
    this.redraw();
  }

  fail(error) {
    this.problem = error instanceof RpcError
      ? { error: { message: error.message, code: error.code, data: error.data }, status: error.answer.status, challenge: error.answer.challenge }
      : { error: { message: error.message } };
    this.redraw();
  }

  memoryOf(story) {
    if (!this._memories.has(story)) this.forget(story);
    return this._memories.get(story);
  }

  forget(story) {
    this._memories.set(story, {});
    return this._memories.get(story);
  }

  /** Return the name of the server that an entry comes from, or null if it is our own. */
  upstreamOf(entry) {
    const found = this.upstreams.find(({ prefix }) => {
      if (prefix === "") return false;
      const uri = (entry.uri ?? entry.uriTemplate ?? "").toLowerCase();
      return entry.name?.startsWith(`${prefix}__`) || uri.startsWith(`${prefix}+`) || uri.startsWith(`ui://${prefix}.`);
    });
    return found?.name ?? null;
  }

  async start() {
    const answer = await fetch("playground/config", { cache: "no-store", credentials: "omit" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}. Reload the page.`);
    this.config = await answer.json();
    document.title = this.config.name;
    const token = this.config.fleet ? tokenOfRun() : "";
    if (token) {
      this.fleet = new FleetControl(token, () => this.redrawSoon());
      this.fleet.start();
    }
    if (this.config.auth === "none") await this.open();
    this.redraw();
  }

  /** Read everything that the caller may see, with the token that is set now. */
  async open() {
    this.problem = null;
    try {
      await Promise.all([this.readList("tools"), this.readList("prompts"), this.readList("resources")]);
      this.upstreams = (await this._own("upstreams")).upstreams;
      if (this.config.tasks) await this.readTasks();
      else this.follower.listen();
      this.isOpen = true;
    } catch (error) {
      this.fail(error);
    }
    this.redraw();
  }

  async readList(name) {
    const lists = this.lists; // those of this caller: somebody else may be here when the answer comes
    const reading = ++this._readings;
    const names = name === "resources" ? ["resources", "templates"] : [name];
    const read = await Promise.all(names.map((each) => this.client.list(each === "templates" ? "resources/templates/list" : `${each}/list`)));
    if (reading < (this._newest.get(name) ?? 0)) return; // the list has changed since, and a newer reading was faster
    this._newest.set(name, reading);
    names.forEach((each, place) => { lists[each] = read[place]; });
    this.redraw();
  }

  async readTasks() {
    try {
      for (const task of (await this._own("tasks")).tasks) {
        if (this.follower.tasks.has(task.taskId)) continue;
        const status = { queued: "working", running: "working", waiting: "input_required", done: task.failed ? "failed" : "completed" }[task.phase] ?? task.phase;
        this.follower.tasks.set(task.taskId, { taskId: task.taskId, tool: task.tool, status, createdAt: new Date(task.createdAt).toISOString() });
      }
    } catch (error) {
      this.fail(error);
    }
    this.follower.listen();
    this.redraw();
  }

  /** Read something of the playground itself that belongs to the caller. */
  async _own(what) {
    const headers = this.token ? { Authorization: `Bearer ${this.token}` } : {};
    const answer = await fetch(`playground/${what}`, { headers, cache: "no-store", credentials: "omit" });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error?.message ?? `The ${what} cannot be read`);
    return body;
  }

  /** Forget the token, and all that was read with it: the next caller may be somebody else. */
  forgetToken() {
    this.token = "";
    this.isOpen = false;
    this.problem = null;
    this.drafts.clear();
    this._memories.clear();
    this.lists = { tools: [], prompts: [], resources: [], templates: [] };
    this.upstreams = [];
    this.calls.clear();
    this.follower.clear();
    this.redraw();
  }

  watch(uri) {
    this.follower.watch(uri);
  }

  async complete(ref, name, value, given) {
    try {
      const { [name]: _, ...others } = given ?? {};
      const result = await this.client.result("completion/complete", { ref, argument: { name, value }, context: { arguments: others } });
      return result.completion?.values ?? [];
    } catch {
      return [];
    }
  }
}

const PANELS = [
  ["stories", "Stories", Stories],
  ["tools", "Tools", Tools],
  ["prompts", "Prompts", Prompts],
  ["resources", "Resources", Resources],
  ["tasks", "Tasks", Tasks],
];

function Page({ app }) {
  useNews(app.news);
  if (app.config === null) return app.problem ? html`<${Problem} ...${app.problem} />` : html`<p class="empty">Loading …</p>`;
  const needsToken = app.config.auth === "bearer" && !app.isOpen;
  return html`<div class="page">
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <${Top} app=${app} />
    ${app.problem && html`<div class="global"><${Problem} ...${app.problem} /><button type="button" class="quiet" onClick=${() => app.choose("problem", null)}>Close</button></div>`}
    ${needsToken ? html`<${Login} app=${app} />` : html`<${Main} app=${app} />`}
    <${Notices} app=${app} />
  </div>`;
}

function Top({ app }) {
  const next = () => {
    const theme = THEMES[(THEMES.indexOf(app.theme) + 1) % THEMES.length];
    document.documentElement.dataset.theme = theme;
    app.choose("theme", theme);
  };
  return html`<header class="top">
    <strong class="brand">${app.config.name}</strong><span class="quiet-text">${app.config.version} · ${app.config.wire}</span>
    <span class="grow"></span>
    ${app.config.auth === "bearer" && app.isOpen && html`<button type="button" class="quiet" onClick=${() => app.forgetToken()}>Forget the token</button>`}
    <button type="button" class="quiet" onClick=${next}>Theme: ${app.theme}</button>
  </header>`;
}

function Login({ app }) {
  const [token, setToken] = useState("");
  const enter = (event) => {
    event.preventDefault();
    const entered = token.trim();
    setToken("");
    // Some browsers quote a header value that they refuse.
    if (!/^[\x21-\x7e]+$/.test(entered)) return app.fail(new Error("A token has only printable ASCII characters, and no spaces"));
    app.token = entered;
    app.open().then(() => document.getElementById("main")?.focus());
  };
  return html`<main id="main" tabindex="-1" class="login"><form onSubmit=${enter}>
    <h1>Enter a bearer token</h1>
    <p class="quiet-text">It stays in the memory of this page, and is sent only to this server. Reloading the page forgets it.</p>
    <label for="token">Token</label><input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.currentTarget.value)} />
    <div class="row"><button type="submit" class="primary" disabled=${!token.trim()}>Continue</button></div>
  </form></main>`;
}

function Main({ app }) {
  const shown = PANELS.filter(([id]) => id !== "stories" || app.fleet);
  const [, , Panel] = shown.find(([id]) => id === app.panel) ?? shown[0];
  const move = (event) => stepThrough(event, shown.map(([id]) => id), app.panel, (id) => app.show(id));
  const waiting = [...app.follower.tasks.values()].filter((task) => task.status === "input_required").length;
  return html`<div class="layout">
    <nav class="tabs" role="tablist" aria-label="panels" onKeyDown=${move}>${shown.map(([id, title]) => html`<button type="button" role="tab" key=${id}
      id=${`tab-${id}`} aria-selected=${app.panel === id} aria-controls="main" tabindex=${app.panel === id ? 0 : -1}
      onClick=${() => app.show(id)}>${title}${id === "tasks" && waiting > 0 ? html` <span class="badge" aria-label=${`${waiting} wait for an answer`}>${waiting}</span>` : null}</button>`)}</nav>
    <main id="main" tabindex="-1" role="tabpanel" aria-labelledby=${`tab-${app.panel}`}><${Safe} key=${app.panel}><${Panel} app=${app} /><//></main>
    <aside class="side" aria-label="calls and processes">
      ${app.fleet && html`<${Fleet} app=${app} />`}
      ${app.config.fleet && !app.fleet && html`<p class="empty">To see and control the processes, open the address that gateway dev printed.</p>`}
      <h2>Calls</h2>
      <${Safe}><${Timeline} app=${app} /><//>
    </aside>
  </div>`;
}

const app = new App();
render(html`<${Page} app=${app} />`, document.getElementById("app"));
addEventListener("beforeunload", (event) => {
  if (app.calls.list.some((call) => call.isOpen)) event.preventDefault();
});
app.start().catch((error) => app.fail(error));
