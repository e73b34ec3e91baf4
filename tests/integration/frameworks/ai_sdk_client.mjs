// Drives a gateway with the tools of @ai-sdk/mcp and prints what it saw as one JSON object.
// Usage: node ai_sdk_client.mjs SCRIPT FOLDER, where FOLDER has the client in its node_modules. driving.py has the rest.

import { pathToFileURL } from 'node:url';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [text, folder] = process.argv.slice(2);
const script = JSON.parse(text);
const installed = createRequire(resolve(folder, 'package.json'));
const { createMCPClient, ElicitationRequestSchema } = await import(pathToFileURL(installed.resolve('@ai-sdk/mcp')));

const TOOL = 'update_work_item';
const questions = [];
const requests = [];
let protocol = null;
let forms = [];

async function recordingFetch(input, init) {
    const response = await fetch(input, init);
    const method = init?.method ?? 'GET';
    const what = method === 'POST' ? (JSON.parse(init.body).method ?? 'answer') : method;
    requests.push([what, response.headers.get('x-gateway-replica')]);
    protocol = new Headers(init?.headers).get('mcp-protocol-version') ?? protocol;
    return response;
}

async function connected(token) {
    const client = await createMCPClient({
        transport: {
            type: 'http',
            url: script.url,
            headers: { Authorization: `Bearer ${token}` },
            fetch: recordingFetch
        },
        capabilities: { elicitation: { form: {} } }
    });
    client.onElicitationRequest(ElicitationRequestSchema, request => {
        questions.push(request.params.message);
        return forms.length > 0 ? { action: 'accept', content: forms.shift() } : { action: 'decline' };
    });
    return client;
}

async function saidOf(call) {
    try {
        return await call();
    } catch (error) {
        return error.message;
    }
}

const client = await connected(script.token);
const tools = await client.tools();
const said = {};
for (const [name, [args, filled]] of Object.entries(script.calls)) {
    forms = filled;
    said[name] = await saidOf(async () => {
        const result = await tools[TOOL].execute(args, { toolCallId: name, messages: [] });
        return result.content.map(block => block.text).join('');
    });
}
await client.close();
said.refused = await saidOf(async () => String(await connected(script.refused_token)));
console.log(JSON.stringify({ protocol, listed: Object.keys(tools), said, questions, requests }));
