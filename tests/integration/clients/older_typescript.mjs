// Uses a gateway with the TypeScript SDK of before June 2025, and prints what it saw as one JSON object.
// Usage: node older_typescript.mjs FOLDER URL, where FOLDER has the client in its node_modules.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, url] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client } = require('mcp-sdk-2025-03/client/index.js');
const { StreamableHTTPClientTransport } = require('mcp-sdk-2025-03/client/streamableHttp.js');
const { CreateMessageRequestSchema } = require('mcp-sdk-2025-03/types.js');

const client = new Client({ name: 'older', version: '1' }, { capabilities: { sampling: {} } });
client.setRequestHandler(CreateMessageRequestSchema, async () => ({
    role: 'assistant',
    content: { type: 'text', text: 'an idea' },
    model: 'none'
}));
const transport = new StreamableHTTPClientTransport(new URL(url));
let protocol;
const handshake = client.request.bind(client);
client.request = async (request, ...more) => {
    const result = await handshake(request, ...more);
    protocol ??= result.protocolVersion;
    return result;
};
await client.connect(transport);

async function call(name, args = {}) {
    const result = await client.callTool({ name, arguments: args });
    return [result.isError ?? false, result.content.map(block => block.text)];
}

const { tools } = await client.listTools();
const saw = {
    protocol,
    add: Object.keys(tools.find(tool => tool.name === 'add')).sort(),
    sum: await call('add', { numbers: [1, 2] }),
    found: await call('find'),
    asked: await call('ask'),
    thought: await call('think'),
    prompt: (await client.getPrompt({ name: 'guide' })).messages[0].content.text,
    resource: (await client.readResource({ uri: 'docs://guide' })).contents[0].text,
    unknown: await client.getPrompt({ name: 'nothing' }).then(() => null, error => error.code)
};
await client.close();
console.log(JSON.stringify(saw));
