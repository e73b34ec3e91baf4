// Everybody can use it: by keyboard alone, with a screen reader, on a small screen, in both themes, without motion.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import test from "node:test";
import { call, ends, newest, panel, withPage } from "./browser.mjs";

const URL = process.env.ASKING_URL;
const AXE = readFileSync(createRequire(resolve(process.env.PEERS, "package.json")).resolve("axe-core/axe.min.js"), "utf8");
const PANELS = ["Tools", "Prompts", "Resources", "Tasks"];
const WIDTHS = [390, 640, 768, 1024, 1440];

/** Return the serious problems that axe finds. It runs beside the page, which its policy does not allow in it. */
async function seriousProblems(page) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: AXE, contextId: executionContextId });
  const { result } = await session.send("Runtime.evaluate", {
    expression: "axe.run().then((found) => JSON.stringify(found.passes.length < 10 ? 'axe saw nothing' : found.violations.filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => [each.id, each.nodes.map((node) => node.html.slice(0, 160))])))",
    contextId: executionContextId,
    awaitPromise: true,
  });
  return JSON.parse(result.value);
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing serious in the ${colorScheme} theme`, async () => {
    await withPage(URL, async (page) => {
      const made = await call(page, "interview");
      await made.getByRole("form", { name: "questions" }).waitFor();
      await ends(await call(page, "show"), "done");
      await ends(await call(page, "fail"), "tool error");
      for (const name of PANELS) {
        await panel(page, name);
        assert.deepEqual(await seriousProblems(page), [], name);
      }
    }, { colorScheme });
  });
}

test("the theme follows the system until somebody chooses one", async () => {
  await withPage(URL, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    await page.getByRole("button", { name: "Theme: auto" }).click();
    assert.notEqual(await ground(), dark);
    await page.getByRole("button", { name: "Theme: light" }).click();
    assert.equal(await ground(), dark);
  }, { colorScheme: "dark" });
});

test("a call with a question needs only the keyboard", async () => {
  await withPage(URL, async (page) => {
    const focused = () => page.evaluate(() => (document.activeElement.getAttribute("aria-label") ?? document.activeElement.innerText ?? "").trim());
    const tabTo = async (pattern) => {
      for (let count = 0; count < 80; count += 1) {
        if (pattern.test(await focused())) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`nothing like ${pattern} gets the focus; at the end: ${await focused()}`);
    };
    await tabTo(/^tools$/);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.getByRole("region", { name: "tool interview" }).waitFor();
    await tabTo(/^Call$/);
    await page.keyboard.press("Enter");
    await newest(page).getByRole("combobox", { name: /^colour/i }).waitFor();
    for (let count = 0; count < 80; count += 1) {
      await page.keyboard.press("Tab");
      if (await newest(page).getByRole("combobox", { name: /^colour/i }).evaluate((field) => field === document.activeElement)) break;
    }
    await page.keyboard.type("blue");
    await tabTo(/^Answer$/);
    await page.keyboard.press("Enter");
    await newest(page).getByText("It wants you to open this address").waitFor();
  });
});

test("nothing is cut off between 390 and 1440 pixels", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    await made.getByRole("form", { name: "questions" }).waitFor();
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      for (const name of PANELS) {
        await panel(page, name);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert(over <= 0, `${name} is ${over} pixels too wide at ${width}`);
      }
    }
  });
});

test("nothing moves for people who do not want that", async () => {
  await withPage(URL, async (page) => {
    await call(page, "slow");
    const dot = newest(page).locator(".leg.running .dot");
    await dot.waitFor({ state: "attached" });
    assert.equal(await dot.evaluate((each) => getComputedStyle(each).animationName), "none");
  }, { reducedMotion: "reduce" });
});
