// Measures the first paint of the page, and keeps it open for a while. Usage: see tests/playground/measure.py.

import { createRequire } from "node:module";
import { resolve } from "node:path";

const { chromium } = createRequire(resolve(process.env.PEERS, "package.json"))("playwright-core");
const { DEV_URL, OPEN_SECONDS } = process.env;
const ROUNDS = 5;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
const paints = [];
let bytes = 0;
for (let round = 0; round < ROUNDS; round += 1) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const sizes = [];
  page.on("response", (response) => sizes.push(response.body().then((body) => (/\/(playground\/.*\.(js|css)|)$/.test(new URL(response.url()).pathname) ? body.length : 0), () => 0)));
  await page.goto(DEV_URL);
  await page.getByRole("tab", { name: "Tools" }).waitFor();
  paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
  await context.close();
}
const page = await browser.newPage();
await page.goto(DEV_URL);
await page.getByRole("region", { name: "fleet" }).waitFor();
console.log(JSON.stringify({ paint: paints.sort((one, other) => one - other)[Math.floor(ROUNDS / 2)], bytes }));
await page.waitForTimeout(Number(OPEN_SECONDS) * 1000);
await browser.close();
