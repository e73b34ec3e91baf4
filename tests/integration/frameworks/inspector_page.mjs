// Drives the MCP Inspector's page in Chromium without a window, and prints what a user saw as one JSON object.
// Usage: node inspector_page.mjs SCRIPT FOLDER, where FOLDER has playwright-core in its node_modules. The Inspector runs
// already: the script's `page` is its address, and `server` the name under which it knows the gateway.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [text, folder] = process.argv.slice(2);
const script = JSON.parse(text);
const { chromium } = createRequire(resolve(folder, 'package.json'))('playwright-core');

const SECONDS = 60;
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

const browser = await chromium.launchPersistentContext('', {
    executablePath: script.chromium,
    headless: true,
    args: QUIET
});
const page = browser.pages()[0];
page.setDefaultTimeout(SECONDS * 1000);
const dialog = page.getByRole('dialog', { name: 'Elicitation Request' });
const question = dialog.getByText(/^“.*”$/);
const results = page.getByRole('heading', { name: 'Results' });
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

// Read a question and answer it; without a form the user declines.
async function answer(form) {
    const message = (await question.innerText()).slice(1, -1);
    questions.push(message);
    if (form) await fillIn(form);
    else await dialog.getByRole('button', { name: 'Decline' }).click();
    await dialog.getByText(message).waitFor({ state: 'detached' });
}

async function call(args, forms) {
    await page.getByRole('textbox', { name: 'workItemId' }).fill(String(args.workItemId));
    await page.getByRole('textbox', { name: /^fields/ }).focus();
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText(JSON.stringify(args.fields));
    await page.getByRole('button', { name: 'Execute Tool' }).click();
    for (;;) {
        await question.or(results).waitFor();
        if (await results.isVisible()) break;
        await answer(forms.shift());
    }
    const shown = await page.getByRole('main').innerText();
    await page.getByRole('button', { name: 'Close results' }).click();
    return shown.split('Results').pop().replace('⎘', '').trim();
}

try {
    await page.goto(script.page);
    await page.getByRole('switch', { name: `Connect or disconnect "${script.server}"` }).click({ force: true });
    const version = page.getByText(/^MCP \d{4}-/);
    await version.waitFor();
    const protocol = (await version.innerText()).replace('MCP ', '');
    await page.getByRole('button', { name: 'Close monitoring sidebar' }).click();
    await page.locator('label', { hasText: 'Tools' }).click();
    const listed = await page.getByRole('button', { name: TOOL }).allInnerTexts();
    await page.getByRole('button', { name: TOOL }).click();
    const said = {};
    for (const [name, [args, forms]] of Object.entries(script.calls)) said[name] = await call(args, forms);
    console.log(JSON.stringify({ protocol, listed, said, questions }));
} catch (error) {
    console.error(await page.locator('body').ariaSnapshot());
    throw error;
} finally {
    await browser.close();
}
