// The caller's tasks, live by one stream, and the notices of changed lists and resources.

import { Problem, Result } from "./content.js";
import { Questions } from "./questions.js";
import { Safe, clock, html } from "./view.js";

const ENDED = new Set(["completed", "failed", "cancelled"]);
const RETRY_MS = 2000;
const NOTICES = 20;
const LISTS = { tools: "tools", prompts: "prompts", resources: "resources" };

/** Follows tasks, lists and resources with one `subscriptions/listen` for the whole page. */
export class Follower {
  /**
   * @param client sends requests.
   * @param onChange called after each change.
   * @param onList called with the name of a list that has changed.
   */
  constructor(client, { onChange, onList }) {
    this.tasks = new Map();
    this.notices = [];
    this.uris = new Set();
    this.heard = null;
    this._client = client;
    this._onChange = onChange;
    this._onList = onList;
    this._stream = null;
  }

  /** Add a task that a call has become, or that was found in the index. */
  add(task, title) {
    this._keep(task);
    if (title !== undefined) this.tasks.get(task.taskId).title = title;
    this._onChange();
    this.listen();
  }

  /** Follow or stop following the changes of a resource. */
  watch(uri) {
    if (!this.uris.delete(uri)) this.uris.add(uri);
    this._onChange();
    this.listen();
  }

  /** Open the stream anew, with everything that is followed now. */
  async listen() {
    this._stream?.abort();
    this.heard = null;
    const stream = (this._stream = new AbortController());
    while (!stream.signal.aborted) {
      const taskIds = [...this.tasks.values()].filter((task) => !ENDED.has(task.status)).map((task) => task.taskId);
      const notifications = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
      if (taskIds.length > 0) notifications.taskIds = taskIds;
      if (this.uris.size > 0) notifications.resourceSubscriptions = [...this.uris];
      try {
        await this._client.request("subscriptions/listen", { notifications }, { signal: stream.signal, onMessage: (message) => this._take(message) });
      } catch (error) {
        if (error.name === "AbortError") return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /** Close the stream, and forget everything that belongs to the caller. */
  clear() {
    this._stream?.abort();
    this.tasks.clear();
    this.uris.clear();
    this.notices = [];
    this.heard = null;
    this._onChange();
  }

  _take(message) {
    const params = message.params ?? {};
    if (message.method === "notifications/subscriptions/acknowledged") {
      this.heard = new Set(params.notifications?.resourceSubscriptions ?? []);
    } else if (message.method === "notifications/tasks") {
      this._keep(params);
    } else {
      const list = /^notifications\/(\w+)\/list_changed$/.exec(message.method)?.[1];
      if (list !== undefined && Object.hasOwn(LISTS, list)) {
        this._note(`The list of ${list} has changed.`);
        this._onList(list);
      } else if (message.method === "notifications/resources/updated") {
        this._note(`The resource ${params.uri} has changed.`);
      }
    }
    this._onChange();
  }

  _note(text) {
    this.notices = [{ at: Date.now(), text }, ...this.notices].slice(0, NOTICES);
  }

  async answer(task, answers) {
    await this._client.result("tasks/update", { taskId: task.taskId, inputResponses: answers });
    await this.refresh(task);
  }

  async cancel(task) {
    await this._client.result("tasks/cancel", { taskId: task.taskId });
    await this.refresh(task);
  }

  async refresh(task) {
    const fresh = await this._client.result("tasks/get", { taskId: task.taskId });
    if (!this.tasks.has(task.taskId)) return; // somebody else may be here when the answer comes
    this._keep(fresh);
    this._onChange();
  }

  /** Keep what is newest: an answer and the stream tell of the same task, and either may arrive last. */
  _keep({ _meta: meta, resultType: _type, ...told }) {
    const { inputRequests: _, ...known } = this.tasks.get(told.taskId) ?? {};
    const isOld = known.lastUpdatedAt !== undefined && Date.parse(told.lastUpdatedAt) < Date.parse(known.lastUpdatedAt);
    if (isOld || (ENDED.has(known.status) && !ENDED.has(told.status))) return;
    this.tasks.set(told.taskId, { ...known, ...told, progress: meta?.["dev.sealedgateway/progress"] });
  }
}

/** The tasks panel. */
export function Tasks({ app }) {
  if (!app.config.tasks) return html`<p class="empty">There is no task store, so calls cannot become tasks. Set GATEWAY_REDIS_URL.</p>`;
  const tasks = [...app.follower.tasks.values()].sort((one, other) => Date.parse(other.createdAt) - Date.parse(one.createdAt));
  return html`<section class="panel">
    <div class="row"><h2>Tasks</h2><span class="grow"></span><button type="button" class="quiet" onClick=${() => app.readTasks()}>Read again</button></div>
    <p class="quiet-text">A task runs in a worker and outlives its page. Reload, and it is still here.</p>
    ${tasks.length === 0 ? html`<p class="empty">No tasks yet. Call a tool that runs as a task.</p>` : tasks.map((task) => html`<${Safe} key=${task.taskId}><${Task} task=${task} app=${app} /><//>`)}
  </section>`;
}

function Task({ task, app }) {
  const act = (promise) => promise.catch((error) => app.fail(error));
  const progress = task.progress;
  const isOver = ENDED.has(task.status);
  return html`<article class="call" tabindex="-1" aria-label=${`task ${task.taskId}`}>
    <header class="row">
      <h3>${task.title ?? task.tool ?? "task"}</h3>
      <span class="chip outcome ${task.status}">${task.status.replace("_", " ")}</span>
      <span class="quiet-text">${clock(Date.parse(task.createdAt))}</span>
      <span class="grow"></span>
      ${isOver ? html`<button type="button" class="quiet" onClick=${() => act(app.follower.refresh(task))}>Read</button>`
        : html`<button type="button" class="quiet" onClick=${() => act(app.follower.cancel(task))}>Cancel</button>`}
    </header>
    <p><code>${task.taskId}</code></p>
    ${progress && !isOver && html`<div class="row"><progress value=${progress.progress} max=${progress.total ?? undefined} aria-label="progress"></progress></div>`}
    ${task.statusMessage && !task.result && html`<p class="quiet-text" aria-live="polite">${task.statusMessage}</p>`}
    ${task.inputRequests && !isOver && html`<${Questions} key=${Object.keys(task.inputRequests).join()} questions=${task.inputRequests} send=${(answers) => act(app.follower.answer(task, answers))} />`}
    ${task.result && html`<${Result} result=${task.result} />`}
    ${task.error && html`<${Problem} error=${task.error} />`}
  </article>`;
}

/** The newest notices. */
export function Notices({ app }) {
  const notices = app.follower.notices;
  // A live region is heard only if it was there before its text.
  return html`<aside class="notices" aria-label="notices" aria-live="polite">${notices.slice(0, 3).map((notice) => html`<p><span class="quiet-text">${clock(notice.at)}</span> ${notice.text}</p>`)}</aside>`;
}
