// Has a client of the TypeScript SDK list and call everything, and prints what it could not read, as one JSON object.
// Usage: node reading_typescript.mjs FOLDER MAJOR TOKEN URL…, where FOLDER has the client of that major version in its
// node_modules. The requests go to the URLs in turn. An error that the server sends is an answer, and a client may refuse
// to show a question. Any other error is a failure.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, major, token, ...urls] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client, StreamableHTTPClientTransport } =
    major === '1'
        ? {
              ...require('@modelcontextprotocol/sdk/client/index.js'),
              ...require('@modelcontextprotocol/sdk/client/streamableHttp.js')
          }
        : require('@modelcontextprotocol/client');
const questions =
    major === '1'
        ? ['ElicitRequestSchema', 'CreateMessageRequestSchema', 'ListRootsRequestSchema'].map(
              name => require('@modelcontextprotocol/sdk/types.js')[name]
          )
        : ['elicitation/create', 'sampling/createMessage', 'roots/list'];

let turn = 0;
let last = {};
async function remember(response) {
    const text = await response.text();
    const [, data] = text.match(/^data: (\{.*"(?:result|error)":.*)$/m) ?? [];
    last = JSON.parse(data ?? (text || '{}'));
}
const inTurn = async (_url, init) => {
    const response = await fetch(urls[turn++ % urls.length], init);
    if (init.method === 'POST') remember(response.clone());
    return response;
};

const client = new Client(
    { name: 'typescript-test', version: '1.0.0' },
    {
        capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
        versionNegotiation: { mode: 'auto' }
    }
);
const model = { role: 'assistant', model: 'm', content: { type: 'text', text: 'a' } };
const answers = [{ action: 'decline' }, model, { roots: [] }];
questions.forEach((question, index) => client.setRequestHandler(question, async () => answers[index]));
await client.connect(
    new StreamableHTTPClientTransport(new URL(urls[0]), {
        fetch: inTurn,
        requestInit: { headers: { authorization: `Bearer ${token}` } }
    })
);

const failures = [];
const ends = { results: 0, errors: 0 };
async function ending(name, doing) {
    try {
        const result = await doing();
        ends.results++;
        return result;
    } catch (error) {
        await new Promise(resolve => setTimeout(resolve, 20));
        const isQuestion = last.result?.resultType === 'input_required' && /^Invalid \w+ request: /.test(error.message);
        if (last.error || isQuestion) ends.errors++;
        else failures.push({ name, error: `${error.name} ${error.message}`, last: JSON.stringify(last).slice(0, 2000) });
    }
}

async function listed(method, member) {
    const entries = [];
    let cursor;
    do {
        const page = await ending(method, () => client[method](cursor ? { cursor } : undefined));
        entries.push(...(page?.[member] ?? []));
        cursor = page?.nextCursor;
    } while (cursor);
    return entries;
}

const tools = await listed('listTools', 'tools');
const prompts = await listed('listPrompts', 'prompts');
const resources = await listed('listResources', 'resources');
const templates = await listed('listResourceTemplates', 'resourceTemplates');
for (const { name } of tools) await ending(name, () => client.callTool({ name, arguments: {} }));
for (const { name } of prompts) {
    await ending(name, () => client.getPrompt({ name }));
    const ref = { type: 'ref/prompt', name };
    await ending(`completion of ${name}`, () => client.complete({ ref, argument: { name: 'a', value: '' } }));
}
for (const { uri } of resources) await ending(uri, () => client.readResource({ uri }));
const counts = [tools, prompts, resources, templates].map(entries => entries.length);
process.stdout.write(JSON.stringify({ counts, ends, failures }), () => process.exit(0));
