// Has a client of the TypeScript SDK answer questions whose answers cannot be delivered, and prints its results.
// Usage: node undelivered_typescript.mjs FOLDER MAJOR URL, where FOLDER has the client of that major version in its
// node_modules. It calls a tool that asks and one that does not, three times each, in one session, and prints what each
// returned as a JSON list.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, major, url] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client, StreamableHTTPClientTransport } =
    major === '1'
        ? {
              ...require('@modelcontextprotocol/sdk/client/index.js'),
              ...require('@modelcontextprotocol/sdk/client/streamableHttp.js')
          }
        : require('@modelcontextprotocol/client');
const elicitation =
    major === '1' ? require('@modelcontextprotocol/sdk/types.js').ElicitRequestSchema : 'elicitation/create';

const client = new Client({ name: 'typescript-test', version: '1.0.0' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(elicitation, async () => ({ action: 'accept', content: { name: 'Ada' } }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const texts = [];
for (const name of ['ask', 'plain', 'ask', 'plain', 'ask', 'plain']) {
    texts.push((await client.callTool({ name })).content[0].text);
}
process.stdout.write(JSON.stringify(texts), () => process.exit(0));
