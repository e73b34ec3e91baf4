// Calls of a server that waits in the middle of them: the page says which process holds them, and what its end means.

import assert from "node:assert/strict";
import test from "node:test";
import { call, panel, withPage } from "./browser.mjs";

test("the page says where a call is held and since when, and that it is lost with that process", async () => {
  await withPage(process.env.HELD_URL, async (page) => {
    const asked = await call(page, "held__delete");
    await asked.getByText("The server waits in the middle of its call").waitFor();
    const said = await asked.innerText();
    const [, holder] = /held by\s+([rh]\d)\s+since \d\d:\d\d:\d\d/.exec(said) ?? [];
    assert(holder, said);
    const fleet = page.getByRole("region", { name: "fleet" });
    await panel(page, "Fleet").catch(() => {}); // it is beside the calls on a wide page
    await fleet.getByText(/^holds 1 since \d\d:\d\d:\d\d$/).waitFor();
    if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE });
    await page.getByRole("button", { name: `kill ${holder}`, exact: true }).click();
    await page.getByRole("button", { name: `start ${holder}`, exact: true }).click();
    await fleet.locator("li", { hasText: holder }).getByText("ready", { exact: true }).waitFor();
    await asked.getByRole("textbox", { name: /^sure/ }).fill("yes");
    await asked.getByRole("button", { name: "Answer", exact: true }).click();
    await asked.getByText(/has been lost meanwhile/).first().waitFor();
    if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE.replace(".png", "-lost.png") });
  });
});
