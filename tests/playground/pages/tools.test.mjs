// Forms, every kind of question, and everything that can be done with a leg.

import assert from "node:assert/strict";
import test from "node:test";
import { call, ends, newest, panel, replicasOf, withPage } from "./browser.mjs";

const URL = process.env.ASKING_URL;

test("a form has a field for each kind of argument, and what it sends arrives", async () => {
  await withPage(URL, async (page) => {
    await page.getByRole("option", { name: /^order\b/ }).click();
    const form = page.getByRole("region", { name: "tool order" });
    await form.getByRole("button", { name: /^Call/ }).click();
    await form.getByText("size choose one").or(form.getByText("size is required")).waitFor();
    await form.getByRole("combobox", { name: /^size/ }).selectOption("large");
    await form.getByRole("textbox", { name: /^city/ }).fill("Bern");
    await form.getByRole("textbox", { name: /^zip/ }).fill("30");
    await form.getByRole("button", { name: "Add" }).click();
    await form.getByRole("textbox", { name: /^tags 1/ }).fill("red");
    await form.getByRole("combobox", { name: "kind of pay" }).selectOption({ index: 1 });
    await form.getByRole("textbox", { name: /^iban/ }).fill("CH93");
    await form.getByRole("checkbox", { name: "gift" }).check();
    await form.getByRole("button", { name: /^Call/ }).click();
    await form.getByText("zip must have at least 4 characters").waitFor();
    await form.getByRole("textbox", { name: /^zip/ }).fill("3011");
    await form.getByRole("button", { name: /^Call/ }).click();
    const made = newest(page);
    await ends(made, "done");
    const sent = JSON.parse(await made.locator("pre.text").first().innerText());
    assert.deepEqual(sent, { size: "large", city: "Bern", tags: ["red"], pay: { iban: "CH93" }, count: 2, gift: true, mail: null });
  });
});

test("an integer above 2^53 arrives as it was typed, on the next leg too", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "double", '{"n": 9007199254740993}');
    await ends(made, "done");
    assert.match(await made.locator("pre.text").first().innerText(), /18014398509481986/);
  });
});

test("text that is not JSON is not sent, and the place of the mistake is named", async () => {
  await withPage(URL, async (page) => {
    await page.getByRole("option", { name: /^double\b/ }).click();
    const form = page.getByRole("region", { name: "tool double" });
    await form.getByRole("button", { name: "Edit as JSON" }).click();
    await form.getByLabel("arguments as JSON").fill('{"n": }');
    await form.getByText(/line 1, column 7/).waitFor();
    await form.getByRole("button", { name: /^Call/ }).click();
    await page.getByText("Calls appear here").waitFor();
  });
});

async function answer(article, fill) {
  const question = article.getByRole("form", { name: "questions" });
  await question.waitFor();
  await fill(question);
  await question.getByRole("button", { name: "Answer", exact: true }).click();
}

test("every kind of question can be answered", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    await answer(made, async (form) => {
      await form.getByRole("combobox", { name: /^colour/i }).selectOption("blue");
    });
    await made.getByText("It wants you to open this address").waitFor();
    const link = made.getByRole("link", { name: "https://login.example.com/start?x=1" });
    assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
    await answer(made, async () => {});
    await made.getByText("A poem?").waitFor();
    await answer(made, (form) => form.getByLabel("Completion").fill("Roses are red"));
    await answer(made, (form) => form.getByLabel("Roots, one URI a line").fill("file:///a\nfile:///b"));
    await made.getByText("Two?", { exact: true }).waitFor();
    await answer(made, async (form) => {
      await form.getByRole("textbox").first().fill("1");
      await form.getByRole("textbox").last().fill("2");
    });
    await ends(made, "done");
    const said = await made.locator("pre.text").last().innerText();
    for (const part of ["blue", "accept", "Roses are red", "file:///b", "1+2"]) assert(said.includes(part), said);
    assert(new Set(await replicasOf(made)).size > 1);
  });
});

test("a question can be declined, and dismissed", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    await made.getByRole("button", { name: "Decline" }).click();
    await made.getByText("colour: declined").waitFor();
    await made.getByRole("button", { name: "Dismiss" }).click();
    await made.getByText("login: dismissed").waitFor();
  });
});

test("an answer that does not fit is not sent", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    const form = made.getByRole("form", { name: "questions" });
    await form.getByRole("combobox", { name: /^colour/i }).selectOption("red");
    await form.getByRole("textbox", { name: /^shades/ }).fill("12");
    await form.getByRole("button", { name: "Answer", exact: true }).click();
    await form.getByText("shades must be at most 9").waitFor();
    assert.equal((await replicasOf(made)).length, 1);
  });
});

test("a changed state is refused, and the call can still go on", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    await made.getByRole("combobox", { name: /^colour/i }).selectOption("red");
    await made.getByRole("button", { name: "Tamper with the state" }).click();
    await made.getByText("Invalid or expired requestState").waitFor();
    await made.getByRole("button", { name: "Answer differently" }).first().click();
    await made.getByRole("combobox", { name: /^colour/i }).selectOption("blue");
    await made.getByRole("button", { name: "Answer", exact: true }).click();
    await made.getByText("It wants you to open this address").waitFor();
  }, { allowed: [/status of 400/] });
});

test("a leg can be sent again, to a chosen replica, and answered differently", async () => {
  await withPage(URL, async (page) => {
    await page.getByRole("combobox", { name: "Send to" }).selectOption("r2");
    const made = await call(page, "interview");
    await made.getByRole("form", { name: "questions" }).waitFor();
    await made.getByText("Send again, copy").first().click();
    await made.getByRole("button", { name: "Send this leg again to r2" }).click();
    await made.getByText("leg 1 sent again").waitFor();
    await made.locator(".leg").nth(1).getByText("asked").waitFor();
    assert.deepEqual(await replicasOf(made), ["r2", "r2"]);
  });
});

test("a copied state continues the call elsewhere", async () => {
  await withPage(URL, async (page, context) => {
    const made = await call(page, "interview");
    await made.getByText("Send again, copy").first().click();
    await made.getByRole("button", { name: "Copy the state" }).click();
    const other = await context.newPage();
    await other.goto(URL);
    await other.getByRole("option", { name: /^interview\b/ }).click();
    await other.getByText("Continue from a copied state").click();
    await other.getByLabel("a copied state").fill(await page.evaluate(() => navigator.clipboard.readText()));
    await other.getByRole("button", { name: "Continue", exact: true }).click();
    await newest(other).getByRole("form", { name: "questions" }).waitFor();
  });
});

test("a copied command has the request and no token", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "double", { n: 4 });
    await ends(made, "done");
    await made.getByText("Send again, copy").first().click();
    await made.getByRole("button", { name: "Copy as curl" }).click();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(command, /^curl -sS 'http:\/\/127\.0\.0\.1:\d+\/mcp'/);
    assert.match(command, /"arguments":\{"n":4\}/);
    assert(!command.includes("Authorization"));
  });
});

test("progress, logs and every kind of content are shown", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "show");
    await ends(made, "done");
    await made.getByText("3 of 3").waitFor();
    await made.getByText('"step": 2').waitFor();
    assert.equal(await made.getByRole("img").count(), 2);
    assert.equal(await made.locator("audio").count(), 1);
    await made.getByRole("link", { name: "https://example.com/page" }).waitFor();
    await made.getByText("embedded text").first().waitFor();
    assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  });
});

test("an error of a tool is shown as one, and a running call can be cancelled", async () => {
  await withPage(URL, async (page) => {
    await ends(await call(page, "fail"), "tool error");
    const made = await call(page, "slow");
    await made.getByRole("button", { name: "Cancel" }).click();
    await ends(made, "cancelled");
  });
});

test("a call that waits for its answer warns before the page is left", async () => {
  await withPage(URL, async (page) => {
    const made = await call(page, "interview");
    await made.getByRole("form", { name: "questions" }).waitFor();
    await page.evaluate(() => document.body.click());
    const warned = new Promise((resolve) => page.once("dialog", (dialog) => { resolve(dialog.type()); dialog.accept(); }));
    await page.reload();
    assert.equal(await warned, "beforeunload");
  });
});

test("prompts suggest values, and resources are read from their templates", async () => {
  await withPage(URL, async (page) => {
    await panel(page, "Prompts");
    await page.getByRole("combobox", { name: /^language/ }).fill("E");
    await page.locator('datalist option[value="Estonian"]').waitFor({ state: "attached" });
    await page.getByRole("combobox", { name: /^language/ }).fill("German");
    await page.getByRole("button", { name: "Get the prompt" }).click();
    await newest(page).getByText("Write a kind letter in German.").first().waitFor();
    await panel(page, "Resources");
    await page.getByRole("option", { name: /note\b/ }).last().click();
    await page.getByLabel(/^name/).fill("a b");
    await page.getByText("notes://a%20b").waitFor();
    await page.getByRole("button", { name: "Read", exact: true }).click();
    await newest(page).getByText("the note a b").first().waitFor();
  });
});

test("notices of changed lists and resources appear", async () => {
  await withPage(URL, async (page) => {
    await panel(page, "Resources");
    await page.getByRole("option", { name: /notes/ }).first().click();
    await page.getByRole("button", { name: "Watch for changes" }).click();
    await page.getByText("The server announces its changes.").waitFor();
    await ends(await call(page, "change"), "done");
    await page.getByText("The resource notes://all has changed.").waitFor();
    await page.getByText("The list of tools has changed.").waitFor();
  });
});
