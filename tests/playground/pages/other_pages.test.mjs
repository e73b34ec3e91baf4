// Pages of another site, which call the gateway as clients of MCP in a browser do.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { launch } from "./browser.mjs";

const { ENDPOINTS, PAGE_PORT, TOKEN, WEAK_TOKEN } = process.env;
const ALLOWED = `http://app.example.com:${PAGE_PORT}`;
const FOREIGN = `http://other.example.com:${PAGE_PORT}`;
const [GUARDED, MOUNTED] = ENDPOINTS.split(",");
const RELEASED = "2026-07-28";
const CLIENT = { name: "page", version: "1" };
const META = { "io.modelcontextprotocol/protocolVersion": RELEASED, "io.modelcontextprotocol/clientCapabilities": {} };
const READ = ["mcp-session-id", "www-authenticate", "retry-after", "allow"];

const site = createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<title>A page</title>"));
let browser;

before(async () => {
  await new Promise((resolve) => site.listen(Number(PAGE_PORT), "127.0.0.1", resolve));
  browser = await launch("--host-resolver-rules=MAP *.example.com 127.0.0.1");
});

after(async () => {
  await browser.close();
  site.close();
});

/** Run `use` with a function that sends a request from a page of this origin, and returns all that the page can read. */
async function withFetch(origin, use) {
  const page = await browser.newPage();
  await page.goto(origin);
  await use((url, method, headers, body) => page.evaluate(async ([url, method, headers, body, read]) => {
    try {
      const response = await fetch(url, { method, headers, body });
      return { status: response.status, headers: Object.fromEntries(read.map((name) => [name, response.headers.get(name)])), text: await response.text() };
    } catch (error) {
      return { failed: String(error) };
    }
  }, [url, method, headers, body, READ]));
  await page.close();
}

/** The headers and the body of a request of a wire. */
function request(version, method, params = {}, more = {}) {
  const released = version === RELEASED;
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": version, ...(released ? { "mcp-method": method } : {}), ...(params.name ? { "mcp-name": params.name } : {}), ...more };
  const sent = released ? { ...params, _meta: META } : params;
  return [headers, JSON.stringify({ jsonrpc: "2.0", id: 7, method, params: sent })];
}

const bearer = (url, token = TOKEN) => (url === GUARDED ? { authorization: `Bearer ${token}` } : {});

for (const version of ["2025-06-18", "2025-11-25", "DRAFT-2026-v1"]) {
  test(`a page keeps its session of ${version}`, () => withFetch(ALLOWED, async (send) => {
    for (const url of [GUARDED, MOUNTED]) {
      const opening = { protocolVersion: version, capabilities: {}, clientInfo: CLIENT };
      const opened = await send(url, "POST", ...request(version, "initialize", opening, bearer(url)));
      const session = opened.headers["mcp-session-id"];
      assert.ok(session, JSON.stringify(opened));
      const inSession = { ...bearer(url), "mcp-session-id": session, "last-event-id": "1" };
      const listed = await send(url, "POST", ...request(version, "tools/list", {}, inSession));
      assert.ok(JSON.parse(listed.text).result.tools.length > 0, listed.text);
      for (const method of ["GET", "DELETE"]) {
        const refused = await send(url, method, { ...inSession, "mcp-protocol-version": version });
        assert.deepEqual([refused.status, refused.headers.allow], [405, "POST"], JSON.stringify(refused));
      }
      const unknown = await send(url, "POST", ...request(version, "tools/list", {}, { ...inSession, "mcp-session-id": "gone" }));
      assert.deepEqual([unknown.status, JSON.parse(unknown.text).jsonrpc], [404, "2.0"]);
    }
  }));
}

test("a page calls without a session, at either form of the URL", () => withFetch(ALLOWED, async (send) => {
  for (const url of [GUARDED, `${GUARDED}/`, MOUNTED, `${MOUNTED}/`]) {
    const listed = await send(url, "POST", ...request(RELEASED, "tools/list", {}, bearer(url.replace(/\/$/, ""))));
    assert.ok(JSON.parse(listed.text).result.tools.length > 0, listed.text);
    const refused = await send(url, "DELETE", { "mcp-protocol-version": RELEASED });
    assert.deepEqual([refused.status, refused.headers.allow], [405, "POST"]);
  }
}));

test("a page reads why it is refused", () => withFetch(ALLOWED, async (send) => {
  const list = (more) => request(RELEASED, "tools/list", {}, more);
  const unknown = await send(GUARDED, "POST", ...list({}));
  assert.deepEqual([unknown.status, unknown.headers["www-authenticate"]?.startsWith("Bearer")], [401, true]);
  const weak = await send(GUARDED, "POST", ...request(RELEASED, "tools/call", { name: "guarded", arguments: {} }, bearer(GUARDED, WEAK_TOKEN)));
  assert.equal(weak.status, 403);
  assert.match(weak.headers["www-authenticate"], /insufficient_scope/);
  const elsewhere = await send(GUARDED.replace("/mcp", "/elsewhere"), "POST", ...list({}));
  assert.equal(elsewhere.status, 404);
  assert.match(JSON.parse(elsewhere.text).error.message, /\/mcp/);
  const large = await send(GUARDED, "POST", list(bearer(GUARDED))[0], " ".repeat(5 * 2 ** 20));
  assert.equal(large.status, 413);
}));

test("a page that is not allowed reads nothing", () => withFetch(FOREIGN, async (send) => {
  for (const url of [GUARDED, MOUNTED]) {
    const sent = await send(url, "POST", ...request(RELEASED, "tools/list", {}, bearer(url)));
    assert.match(sent.failed, /Failed to fetch/);
    const simple = await send(url, "POST", { "content-type": "text/plain" }, "{}");
    assert.match(simple.failed, /Failed to fetch/);
  }
}));
