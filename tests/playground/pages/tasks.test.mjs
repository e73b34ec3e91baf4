// Tasks live and after a reload, and the controls of the fleet.

import assert from "node:assert/strict";
import test from "node:test";
import { call, ends, newest, panel, withPage } from "./browser.mjs";

const URL = process.env.DEV_URL;

test("a task asks, is answered after a reload, and shows its result", async () => {
  await withPage(URL, async (page) => {
    await ends(await call(page, "echo"), "became a task");
    await panel(page, "Tasks");
    const task = page.getByRole("article", { name: /^task / }).first();
    const name = await task.getAttribute("aria-label");
    await task.getByText("Please provide the input string").waitFor();
    await page.reload();
    await panel(page, "Tasks");
    const again = page.getByRole("article", { name });
    await again.getByRole("textbox", { name: /^input/ }).fill("hello");
    await again.getByRole("button", { name: "Answer", exact: true }).click();
    await again.getByText("Echo: hello").first().waitFor();
    await again.locator("header").getByText("completed").waitFor();
  });
});

test("a task can be cancelled", async () => {
  await withPage(URL, async (page) => {
    await ends(await call(page, "echo"), "became a task");
    await panel(page, "Tasks");
    const task = page.getByRole("article", { name: /^task / }).first();
    await task.getByRole("button", { name: "Cancel" }).click();
    await task.locator("header").getByText("cancelled").waitFor();
  });
});

test("a call survives a rotation of the keys, a new replica and a new release", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "link_accounts");
    await made.getByRole("form", { name: "questions" }).waitFor();
    const fleet = page.getByRole("region", { name: "fleet" });
    await fleet.getByRole("button", { name: "Add a replica" }).click();
    await fleet.getByText("r3 starts").waitFor();
    await fleet.getByRole("button", { name: "Next step of a rotation" }).click();
    await fleet.getByText("a new key seals").waitFor();
    await fleet.getByRole("button", { name: "Roll out release 2" }).click();
    await fleet.getByRole("button", { name: "Roll out release 1" }).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll(".process")].every((each) => each.classList.contains("ready")), null, { timeout: 60_000 });
    const form = made.getByRole("form", { name: "questions" });
    await form.getByRole("textbox").first().fill("ada");
    await form.getByRole("textbox").last().fill("ada");
    await form.getByRole("button", { name: "Answer", exact: true }).click();
    await made.getByText("Microsoft").first().waitFor();
    assert.equal(await made.locator(".leg").last().getByText("github_login", { exact: true }).count(), 1);
  });
});

test("a replica can be stopped and started", async () => {
  await withPage(URL, async (page) => {
    const fleet = page.getByRole("region", { name: "fleet" });
    await fleet.getByRole("button", { name: "stop r2" }).click();
    await fleet.getByText("stopped").waitFor();
    await ends(await call(page, "update_work_item", { workItemId: 1, fields: {} }), "done");
    await fleet.getByRole("button", { name: "start r2" }).click();
    await fleet.getByRole("button", { name: "stop r2" }).waitFor();
    assert.equal(await newest(page).locator("header .replica").innerText() === "r2", false);
  });
});

test("a replica that is killed in the middle of a leg loses the answer, and another one runs the leg again", async () => {
  await withPage(URL, async (page) => {
    const fleet = page.getByRole("region", { name: "fleet" });
    await fleet.getByRole("button", { name: "kill r1" }).waitFor();
    await page.getByRole("combobox", { name: "Send to" }).selectOption("r1");
    const made = await call(page, "crunch", { units: 3000, unitMs: 10 });
    await made.getByText("running").first().waitFor();
    await fleet.getByRole("button", { name: "kill r1" }).click();
    await ends(made, "no answer");
    await page.getByRole("combobox", { name: "Send to" }).selectOption("");
    await made.getByText("Send again, copy").first().click();
    await made.getByRole("button", { name: "Send this leg again" }).click();
    await made.getByText("leg 1 sent again").waitFor();
    await made.getByRole("button", { name: "Cancel" }).click();
    await fleet.getByRole("button", { name: "start r1" }).click();
    await fleet.getByRole("button", { name: "stop r1" }).waitFor();
  }, { allowed: [/ERR_/] });
});

test("a replica that stops hands its leg over, and the call goes on by itself", async () => {
  await withPage(URL, async (page) => {
    const fleet = page.getByRole("region", { name: "fleet" });
    await page.waitForFunction(() => [...document.querySelectorAll(".process")].every((each) => each.classList.contains("ready")), null, { timeout: 60_000 });
    await page.getByRole("combobox", { name: "Send to" }).selectOption("r2");
    const made = await call(page, "crunch", { units: 300, unitMs: 10 });
    await made.getByText("running").first().waitFor();
    await fleet.getByRole("button", { name: "stop r2" }).click();
    await made.getByText("handed over by a busy or leaving replica").waitFor();
    await ends(made, "done");
    const replicas = await made.locator(".leg > .row .replica").allInnerTexts();
    assert.equal(replicas[0], "r2");
    assert.notEqual(replicas[1], "r2");
    await fleet.getByRole("button", { name: "start r2" }).click();
  });
});
