// Everything from a server is text, and other pages can do nothing.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";
import { call, ends, newest, panel, withPage } from "./browser.mjs";

const URL_ = process.env.HOSTILE_URL;

async function isUnharmed(page) {
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.locator('img[src="x"], #app script, [onerror]').count(), 0);
  assert.equal(await page.locator('a[href^="javascript"]').count(), 0);
}

test("texts of tools, schemas, questions, results and errors stay texts", async () => {
  await withPage(URL_, async (page) => {
    await page.getByRole("listbox").getByRole("option", { name: /onerror/ }).click();
    await isUnharmed(page);
    await page.getByRole("region", { name: "tool attack" }).getByRole("button", { name: /^Call/ }).click();
    const made = newest(page);
    await made.getByRole("button", { name: "Decline" }).waitFor();
    await isUnharmed(page);
    await made.getByRole("button", { name: "Decline" }).click();
    await made.getByText("xn--80ak6aa92e.com").first().waitFor();
    await isUnharmed(page);
    await made.getByRole("button", { name: "Decline" }).click();
    await ends(made, "done");
    await made.getByText("The whole result").click();
    await isUnharmed(page);
    await ends(await call(page, "explode"), "tool error");
    await isUnharmed(page);
  });
});

test("texts of prompts, suggestions and resources stay texts", async () => {
  await withPage(URL_, async (page) => {
    await panel(page, "Prompts");
    await page.getByRole("combobox", { name: /^name/ }).fill("x");
    await page.locator("datalist option").first().waitFor({ state: "attached" });
    await page.getByRole("button", { name: "Get the prompt" }).click();
    await ends(newest(page), "done");
    await panel(page, "Resources");
    await page.getByRole("button", { name: "Read", exact: true }).click();
    await newest(page).getByText("bad://one").first().waitFor();
    await isUnharmed(page);
  });
});

test("of a thousand tools, only those in sight are drawn", async () => {
  await withPage(URL_, async (page) => {
    await page.getByPlaceholder("Search 1002 tools").waitFor();
    assert((await page.getByRole("listbox").getByRole("option").count()) < 60);
    await page.getByLabel("search tools").fill("tool_0987");
    await page.getByRole("option", { name: /tool_0987/ }).click();
    await page.getByRole("region", { name: "tool tool_0987" }).getByRole("button", { name: /^Call/ }).click();
    await newest(page).getByText("987", { exact: true }).first().waitFor();
    await page.getByLabel("search tools").fill("");
    await page.locator(".rows").evaluate((rows) => { rows.scrollTop = rows.scrollHeight; });
    await page.getByRole("option", { name: /tool_0999/ }).waitFor();
  });
});

test("another page can neither frame it, nor read from it, nor give orders", async () => {
  const other = createServer((_request, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<iframe src="${URL_}"></iframe>`);
  });
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  const origin = `http://localhost:${other.address().port}/`;
  try {
    await withPage(origin, async (page) => {
      await page.waitForLoadState("networkidle");
      const framed = page.frames().find((frame) => frame !== page.mainFrame());
      assert.equal(await framed?.evaluate(() => document.getElementById("app")).catch(() => null), null);
      const tried = await page.evaluate(async (url) => {
        const outcomes = {};
        for (const [name, path, options] of [
          ["session", "playground/fleet/session", {}],
          ["config", "playground/config", {}],
          ["kill", "playground/fleet/replicas/r1/kill", { method: "POST", mode: "no-cors" }],
          ["script", "playground/app.js", {}],
        ]) {
          outcomes[name] = await fetch(url + path, options).then((answer) => answer.type === "opaque" ? "opaque" : `read ${answer.status}`, () => "failed");
        }
        return outcomes;
      }, URL_);
      for (const outcome of Object.values(tried)) assert(["failed", "opaque"].includes(outcome), JSON.stringify(tried));
    }, { allowed: [/./] });
    await withPage(URL_, async (page) => {
      const fleet = page.getByRole("region", { name: "fleet" });
      await fleet.getByText("ready").first().waitFor();
      assert.equal(await fleet.getByText("killed").count(), 0);
    });
  } finally {
    other.close();
  }
});

test("a name that was rebound to this machine gets nothing", async () => {
  const rebound = new URL(URL_);
  rebound.hostname = "rebound.example";
  await withPage(rebound.href, async (page) => {
    assert.match(await page.evaluate(() => document.body.innerText), /does not answer for that host/);
    const statuses = await page.evaluate(() => Promise.all(["playground/fleet/session", "playground/config", "mcp"].map((path) => fetch(path).then((answer) => answer.status))));
    assert.deepEqual(statuses, [403, 403, 403]);
  }, { args: ["--host-resolver-rules=MAP rebound.example 127.0.0.1"], allowed: [/status of 403/, /Cross-Origin-Opener-Policy/] });
});
