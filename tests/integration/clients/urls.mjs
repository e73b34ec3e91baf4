// Answers each line, a JSON text, with what Node.js makes of it as a URL: its text, or null if it is none.

import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
    const text = JSON.parse(line);
    console.log(JSON.stringify(URL.canParse(text) ? new URL(text).href : null));
}
