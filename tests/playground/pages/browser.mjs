// Chromium for the tests of the playground, and what they do again and again.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const { chromium } = createRequire(resolve(process.env.PEERS, "package.json"))("playwright-core");
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const MS = 20_000;

/** Start the browser. */
export function launch(...args) {
  return chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: [...QUIET, ...args] });
}

/** Run `use` with a page of the playground. Anything that the page loads from elsewhere, and any error, is a failure. */
export async function withPage(url, use, { width = 1280, height = 900, colorScheme = "light", reducedMotion = "no-preference", token, allowed = [], args = [] } = {}) {
  const browser = await launch(...args);
  try {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion, permissions: ["clipboard-read", "clipboard-write"] });
    const page = await context.newPage();
    page.setDefaultTimeout(MS);
    const problems = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    page.on("request", (request) => {
      const address = new URL(request.url());
      if (address.protocol.startsWith("http") && address.origin !== new URL(url).origin) problems.push(`loads ${address}`);
    });
    await page.goto(url);
    if (token !== undefined) {
      await page.getByLabel("Token").fill(token);
      await page.getByRole("button", { name: "Continue" }).click();
    }
    await use(page, context);
    const left = problems.filter((problem) => !allowed.some((pattern) => pattern.test(problem)));
    assert.deepEqual(left, []);
  } finally {
    await browser.close();
  }
}

/** Show a panel. */
export async function panel(page, name) {
  await page.getByRole("tab", { name: new RegExp(`^${name}`) }).first().click();
}

/** Choose a tool, fill in its arguments as JSON, and call it. Return its call in the timeline. */
export async function call(page, tool, args) {
  await panel(page, "Tools");
  await page.getByRole("option", { name: new RegExp(`^${tool}\\b`) }).click();
  const form = page.getByRole("region", { name: `tool ${tool}` });
  if (args !== undefined) {
    await form.getByRole("button", { name: "Edit as JSON" }).click();
    await form.getByLabel("arguments as JSON").fill(typeof args === "string" ? args : JSON.stringify(args));
  }
  await form.getByRole("button", { name: /^Call/ }).click();
  return newest(page);
}

/** The newest call in the timeline. */
export function newest(page) {
  return page.getByRole("article", { name: /^call / }).first();
}

/** Wait until a call shows how it ended. */
export async function ends(article, outcome) {
  await article.locator("header").getByText(outcome, { exact: true }).waitFor();
}

export async function replicasOf(article) {
  return article.locator(".leg > .row .replica").allInnerTexts();
}
