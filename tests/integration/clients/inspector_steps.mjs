// Does with the Inspector's page what docs/start/connect.md says, in a Chromium without a window, and prints the results.
// Usage: node inspector_steps.mjs FOLDER ADDRESS NAMES, where FOLDER has playwright-core in its node_modules, and NAMES is
// a JSON array of what the page names, in order. CHROMIUM names the browser.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, address, text] = process.argv.slice(2);
const [before, after, tab, tool, argument, execute, field, submit] = JSON.parse(text);
const { chromium } = createRequire(resolve(folder, 'package.json'))('playwright-core');

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const page = await browser.newPage();
page.setDefaultTimeout(60_000);
await page.goto(address);

await page.getByText(before, { exact: true }).waitFor();
await page.getByRole('switch').click({ force: true });
await page.getByText(after, { exact: true }).waitFor();

await page.getByText(tab, { exact: true }).first().click();
await page.getByRole('button', { name: tool, exact: true }).click();
await page.getByRole('textbox', { name: argument }).fill('Oslo');
await page.getByRole('button', { name: execute, exact: true }).click();

const question = page.getByRole('dialog');
await question.getByRole('textbox', { name: field }).fill('octocat');
await question.getByRole('button', { name: submit, exact: true }).click();

const results = page.getByText('looked up for');
await results.waitFor();
console.log(await results.innerText());
await browser.close();
