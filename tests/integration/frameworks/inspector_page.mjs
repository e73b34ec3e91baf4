// Drives the MCP Inspector's page in Chromium without a window, and prints what a user saw as one JSON object.
// Usage: node inspector_page.mjs SCRIPT FOLDER DIRECTORY SERVER. FOLDER has playwright-core in its node_modules. The
// Inspector is there already: the script's `page` is its address, and SERVER the name under which it knows the gateway.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [text, folder, directory, server] = process.argv.slice(2);
const script = JSON.parse(text);
const { chromium } = createRequire(resolve(folder, 'package.json'))('playwright-core');

const SECONDS = 40;
const TOOL = 'update_work_item';
const QUIET = [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync'
];

const browser = await chromium.launchPersistentContext(directory, {
    executablePath: process.env.CHROMIUM,
    headless: true,
    args: QUIET
});
const page = browser.pages()[0];
page.setDefaultTimeout(SECONDS * 1000);
const dialog = page.getByRole('dialog', { name: 'Elicitation Request' });
const questions = [];

async function fillIn(form) {
    for (const [name, value] of Object.entries(form)) {
        const box = dialog.getByRole('textbox', { name });
        if (typeof value === 'string') {
            await box.click();
            await page.getByRole('option', { name: value, exact: true }).click();
        } else {
            await box.fill(String(value));
        }
    }
    await dialog.getByRole('button', { name: 'Submit' }).click();
}

// Wait for a question, read it, and answer it; without a form the user declines.
async function answer(form) {
    const question = dialog.getByText(/^“.*”$/);
    await question.waitFor();
    const message = (await question.innerText()).slice(1, -1);
    questions.push(message);
    if (form) await fillIn(form);
    else await dialog.getByRole('button', { name: 'Decline' }).click();
    await page.getByText(message).waitFor({ state: 'detached' });
}

async function call(args, forms, asked) {
    await page.getByRole('textbox', { name: 'workItemId' }).fill(String(args.workItemId));
    await page.getByRole('textbox', { name: /^fields/ }).focus();
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText(JSON.stringify(args.fields));
    await page.getByRole('button', { name: 'Execute Tool' }).click();
    for (let round = 0; round < asked; round++) await answer(forms[round]);
    await page.getByRole('heading', { name: 'Results' }).waitFor();
    const shown = await page.getByRole('main').innerText();
    await page.getByRole('button', { name: 'Close results' }).click();
    return shown.split('Results').pop().replace('⎘', '').trim();
}

try {
    await page.goto(script.page);
    await page.getByRole('switch', { name: `Connect or disconnect "${server}"` }).click({ force: true });
    const version = page.getByText(/^MCP \d{4}-/);
    await version.waitFor();
    const protocol = (await version.innerText()).replace('MCP ', '');
    await page.getByRole('button', { name: 'Close monitoring sidebar' }).click();
    await page.locator('label', { hasText: 'Tools' }).click();
    const listed = await page.getByRole('button', { name: TOOL }).allInnerTexts();
    await page.getByRole('button', { name: TOOL }).click();
    const said = {};
    for (const [name, [args, forms, asked]] of Object.entries(script.calls)) said[name] = await call(args, forms, asked);
    console.log(JSON.stringify({ protocol, listed, said, questions }));
} catch (error) {
    console.error(await page.locator('body').ariaSnapshot());
    throw error;
} finally {
    await browser.close();
}
