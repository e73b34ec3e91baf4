// Has a user of a client of the TypeScript SDK visit the URLs that a tool needs first, and prints what happened.
// Usage: node visiting_typescript.mjs FOLDER MAJOR URL TOOL ARGUMENTS, where FOLDER has the client of that major version
// in its node_modules. It prints the URLs and ids of the questions and the text of the result as one JSON object.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, major, url, name, given] = process.argv.slice(2);
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

const asked = [];
const client = new Client({ name: 'typescript-test', version: '1.0.0' }, { capabilities: { elicitation: { url: {} } } });
client.setRequestHandler(elicitation, async request => {
    asked.push([request.params.url, request.params.elicitationId ?? null]);
    return { action: 'accept' };
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const result = await client.callTool({ name, arguments: JSON.parse(given) });
const saw = { asked, text: result.content[0].text, failed: result.isError ?? false };
process.stdout.write(JSON.stringify(saw), () => process.exit(0));
