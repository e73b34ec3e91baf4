// Takes the pictures of the documents. Usage: see tests/playground/pictures.py.

import { call, newest, panel, withPage } from "./browser.mjs";

const { DEV_URL, FOLDER } = process.env;

async function tellOfTheKilledReplica(page) {
  await panel(page, "Stories");
  await page.getByRole("tab", { name: "The replica that dies" }).click();
  await page.getByRole("button", { name: "Call update_work_item" }).click();
  const kill = page.getByRole("button", { name: /^Kill r\d$/ }).filter({ hasText: /^Kill r/ });
  await kill.click();
  await page.getByRole("region", { name: "fleet" }).getByText("killed").waitFor();
  const made = newest(page);
  await made.getByRole("combobox", { name: /^resolution/ }).selectOption("Duplicate");
  await made.getByRole("button", { name: "Answer", exact: true }).click();
  await made.getByRole("textbox", { name: /^duplicateOfId/ }).fill("17");
  await made.getByRole("button", { name: "Answer", exact: true }).click();
  await page.getByText("had begun").waitFor();
}

await withPage(DEV_URL, async (page) => {
  await tellOfTheKilledReplica(page);
  await page.screenshot({ path: `${FOLDER}/playground-killed-replica.png` });
}, { width: 1200, height: 920, reducedMotion: "reduce" });

await withPage(DEV_URL, async (page) => {
  const fleet = page.getByRole("region", { name: "fleet" });
  await fleet.getByRole("button", { name: /^start r/ }).click();
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].every((each) => each.classList.contains("ready")));
  await page.getByRole("textbox", { name: /^location/ }).fill("Bern");
  const made = await call(page, "get_weather");
  await made.getByRole("textbox", { name: /^name/ }).fill("octocat");
  await page.screenshot({ path: `${FOLDER}/playground-question.png` });
  page.once("dialog", (dialog) => dialog.accept());
}, { width: 1200, height: 760, colorScheme: "dark", reducedMotion: "reduce" });
