// The three guided stories, with real replicas and a real worker that are killed.

import assert from "node:assert/strict";
import test from "node:test";
import { ends, newest, panel, replicasOf, withPage } from "./browser.mjs";

const URL = process.env.DEV_URL;

async function tell(page, story) {
  await panel(page, "Stories");
  await page.getByRole("tab", { name: story }).click();
}

async function answerBoth(page) {
  const call = newest(page);
  await call.getByRole("combobox", { name: /^resolution/ }).selectOption("Duplicate");
  await call.getByRole("button", { name: "Answer", exact: true }).click();
  await call.getByRole("textbox", { name: /^duplicateOfId/ }).fill("17");
  await call.getByRole("button", { name: "Answer", exact: true }).click();
  await ends(call, "done");
  return call;
}

test("a call hops from replica to replica", async () => {
  await withPage(URL, async (page) => {
    await tell(page, "The call that hops");
    await page.getByRole("button", { name: "Call update_work_item" }).click();
    await page.getByText("Everything it had learned").waitFor();
    const call = await answerBoth(page);
    await page.getByText("no shared store").waitFor();
    const replicas = await replicasOf(call);
    assert.equal(replicas.length, 3);
    assert(new Set(replicas).size > 1, String(replicas));
    const trail = await call.locator("header .replica").allInnerTexts();
    assert.deepEqual(trail, replicas.filter((id, place) => id !== replicas[place - 1]));
    assert.match(await call.innerText(), /Bug #42 resolved as Duplicate of Bug #17/);
  });
});

test("a replica dies between question and answer, and another one finishes", async () => {
  await withPage(URL, async (page) => {
    await tell(page, "The replica that dies");
    await page.getByRole("button", { name: "Call update_work_item" }).click();
    const kill = page.getByRole("button", { name: /^Kill r\d$/, exact: false }).filter({ hasText: /^Kill r/ });
    const victim = (await kill.innerText()).replace("Kill ", "");
    await kill.click();
    await page.getByRole("region", { name: "fleet" }).getByText("killed").waitFor();
    const call = await answerBoth(page);
    const replicas = await replicasOf(call);
    assert.equal(replicas[0], victim);
    assert(!replicas.slice(1).includes(victim));
    await page.getByText("had begun").waitFor();
    await page.getByRole("button", { name: `Start ${victim}`, exact: true }).click();
    await page.getByText("It takes requests again").waitFor();
  });
});

test("a task goes on where its worker was killed", async () => {
  await withPage(URL, async (page) => {
    await tell(page, "The task whose worker is killed");
    await page.getByRole("button", { name: "Call report" }).click();
    await page.getByRole("button", { name: "Kill w1", exact: true }).click();
    await page.getByText(/The worker is dead after section \d+/).waitFor();
    await page.getByRole("button", { name: "Start w1", exact: true }).click();
    await page.getByText("No section was written twice").waitFor({ timeout: 60_000 });
    await panel(page, "Tasks");
    const task = page.getByRole("article", { name: /^task / }).first();
    const sections = (await task.locator("pre.text").allInnerTexts()).map((text) => Number(text.split(".")[0]));
    assert.deepEqual(sections, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
  });
});
