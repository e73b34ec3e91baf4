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
          ["fleet", "playground/fleet", {}],
          ["config", "playground/config", {}],
          ["kill", "playground/fleet/replicas/r1/kill", { method: "POST", mode: "no-cors" }],
          ["script", "playground/app.js", {}],
        ]) {
          outcomes[name] = await fetch(new URL(path, url), options).then((answer) => answer.type === "opaque" ? "opaque" : `read ${answer.status}`, () => "failed");
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

test("the token of the run leaves the address, stays in the tab, and is in no other one", async () => {
  await withPage(URL_, async (page, context) => {
    const plain = new URL("/", URL_).href;
    await page.getByRole("region", { name: "fleet" }).waitFor();
    assert.equal(page.url(), plain);
    await page.reload();
    await page.getByRole("region", { name: "fleet" }).waitFor();
    const other = await context.newPage();
    await other.goto(plain);
    await other.getByText("open the address that gateway dev printed").waitFor();
    assert.equal(await other.getByRole("region", { name: "fleet" }).count(), 0);
  });
});

test("a name that was rebound to this machine gets nothing", async () => {
  const rebound = new URL(URL_);
  rebound.hostname = "rebound.example";
  await withPage(rebound.href, async (page) => {
    assert.match(await page.evaluate(() => document.body.innerText), /does not answer for that host/);
    const statuses = await page.evaluate(() => Promise.all(["playground/fleet", "playground/config", "mcp"].map((path) => fetch(path).then((answer) => answer.status))));
    assert.deepEqual(statuses, [403, 403, 403]);
  }, { args: ["--host-resolver-rules=MAP rebound.example 127.0.0.1"], allowed: [/status of 403/, /Cross-Origin-Opener-Policy/] });
});

/** Let a page get these results instead of the server's, by method. */
async function answering(page, results) {
  await page.route("**/mcp", async (route) => {
    const { id, method } = JSON.parse(route.request().postData());
    if (!Object.hasOwn(results, method)) return route.continue();
    await route.fulfill({ contentType: "application/json", headers: { "x-gateway-replica": "r1" }, body: `{"jsonrpc":"2.0","id":${id},"result":${results[method]}}` });
  });
}

const FORGED = '{"__b":1,"type":"img","props":{"src":"x","onerror":"pwned=1"},"key":null,"__v":1}';
const NODE = `{"type":"object","title":${FORGED},"description":${FORGED},"properties":{"next":{"$ref":"#"},"n":{"type":"number"},"s":{"type":"string","default":5},"f":{"type":"string","format":"constructor"}}}`;
const STRANGE = `[{"name":"linked","title":${FORGED},"description":${FORGED},"annotations":{"__proto__":true,"constructor":1},"inputSchema":${NODE}},
  {"name":"odd","inputSchema":{"type":"object","required":5,"properties":{"a":{"$ref":"#/%"},"b":{"anyOf":{"x":1}}}}},
  {"name":"circle","inputSchema":{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}}}}]`;

test("objects in the place of texts, and schemas without an end, are shown and harm nothing", async () => {
  await withPage("about:blank", async (page) => {
    await answering(page, {
      "tools/list": `{"tools":${STRANGE}}`,
      "tools/call": `{"resultType":"complete","content":[{"type":"text","text":${FORGED}},{"type":"resource_link","uri":"https://bank.example@evil.example/","name":${FORGED}},null,5],"structuredContent":${FORGED}}`,
    });
    await page.goto(URL_);
    for (const name of ["linked", "odd", "circle"]) {
      await page.getByRole("option").nth(["linked", "odd", "circle"].indexOf(name)).click();
      await page.getByRole("region", { name: `tool ${name}` }).getByRole("button", { name: /^Call/ }).waitFor();
    }
    await page.getByRole("option").first().click();
    const form = page.getByRole("region", { name: "tool linked" });
    await form.getByRole("button", { name: "add next" }).click();
    await form.getByRole("button", { name: "add next" }).waitFor();
    await form.getByRole("button", { name: "leave out next" }).click();
    await form.getByLabel("n", { exact: true }).first().pressSequentially("1.05");
    assert.equal(await form.getByLabel("n", { exact: true }).first().inputValue(), "1.05");
    await form.getByLabel("s", { exact: true }).first().fill("x");
    await form.getByLabel("f", { exact: true }).first().pressSequentially("y".repeat(70));
    await form.getByRole("button", { name: /^Call/ }).click();
    await ends(newest(page), "done");
    assert.equal(await newest(page).locator("a").count(), 0);
    await isUnharmed(page);
  }, { allowed: [/loads http/] });
});
