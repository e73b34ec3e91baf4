// Under `gateway serve`, and mounted in another application: a token, and no fleet.

import assert from "node:assert/strict";
import test from "node:test";
import { call, ends, newest, panel, withPage } from "./browser.mjs";

const { SERVE_URL, TOKEN, WEAK_TOKEN, MOUNTED_URL } = process.env;

test("it asks for a token, keeps it in memory alone, and has no fleet", async () => {
  await withPage(SERVE_URL, async (page) => {
    const made = await call(page, "link_accounts");
    await made.getByRole("form", { name: "questions" }).waitFor();
    assert.equal(await page.getByRole("tab", { name: "Stories" }).count(), 0);
    assert.equal(await page.getByRole("combobox", { name: "Send to" }).count(), 0);
    const kept = await page.evaluate(async () => [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, location.href, (await indexedDB.databases()).length]);
    assert(!kept.join(" ").includes(TOKEN.slice(10, 40)));
    assert.equal(kept[4], 0);
    await made.getByText("Send again, copy").first().click();
    await made.getByRole("button", { name: "Copy as Python" }).click();
    assert(!(await page.evaluate(() => navigator.clipboard.readText())).includes(TOKEN));
    page.once("dialog", (dialog) => dialog.accept());
    await page.reload();
    await page.getByLabel("Token").waitFor();
  }, { token: TOKEN });
});

test("a token that is not accepted is named as the problem", async () => {
  await withPage(SERVE_URL, async (page) => {
    await page.getByText("The token is missing, expired or not accepted").waitFor();
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("option", { name: /^link_accounts/ }).waitFor();
  }, { token: "not-a-token", allowed: [/status of 401/] });
});

test("a forgotten token takes along what was read with it", async () => {
  await withPage(SERVE_URL, async (page) => {
    await call(page, "link_accounts");
    await newest(page).getByRole("form", { name: "questions" }).waitFor();
    await page.getByRole("button", { name: "Forget the token" }).click();
    await page.getByLabel("Token").fill("Zürich");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("only printable ASCII characters").waitFor();
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("Calls appear here").waitFor();
    assert.equal(await page.getByRole("article").count(), 0);
  }, { token: TOKEN });
});

test("the token goes to the gateway's own paths only", async () => {
  const seen = [];
  await withPage(SERVE_URL, async (page) => {
    page.on("request", async (request) => seen.push([new URL(request.url()).pathname, (await request.allHeaders()).authorization]));
    await ends(await call(page, "update_work_item", { workItemId: 1, fields: {} }), "done");
  }, { token: TOKEN });
  assert(seen.length > 0);
  for (const [path, authorization] of seen) assert(authorization === undefined || path === "/mcp" || ["/playground/tasks", "/playground/upstreams"].includes(path), path);
});

test("the control of processes and the choice of a replica are not there", async () => {
  for (const path of ["playground/fleet", "playground/fleet/session", "playground/replicas/r1/mcp"]) {
    assert.equal((await fetch(SERVE_URL + path)).status, 404, path);
  }
});

test("it works below a path of another application", async () => {
  await withPage(MOUNTED_URL, async (page) => {
    await ends(await call(page, "update_work_item", { workItemId: 5, fields: { a: "b" } }), "done");
    await newest(page).getByText("Work item #5 updated: a.").first().waitFor();
    await panel(page, "Tasks");
    await page.getByText("There is no task store").waitFor();
  });
});

test("a missing scope is named", async () => {
  await withPage(SERVE_URL, async (page) => {
    await page.getByRole("option", { name: /^link_accounts/ }).waitFor();
    const answer = await page.evaluate(async (token) => {
      const { Client } = await import("./playground/wire.js");
      const client = new Client({ token: () => token });
      const got = await client.request("tools/call", { name: "guarded", arguments: {} });
      return { status: got.status, challenge: got.challenge };
    }, WEAK_TOKEN);
    assert.equal(answer.status, 403);
    assert.match(answer.challenge, /scope="secrets:read"/);
  }, { token: TOKEN, allowed: [/status of 403/] });
});
