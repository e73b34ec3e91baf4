// Drives a gateway with the TypeScript SDK's client of 1.x and prints what it saw as one JSON object.
// Usage: node handshake_typescript.mjs FOLDER URL REPLICA-URL, where FOLDER has the client in its node_modules. It
// prints the line `restart` when the test should restart the replicas, and continues after a line on its standard input.

import { once } from 'node:events';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, url, replicaUrl] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ListRootsRequestSchema,
    LoggingMessageNotificationSchema
} = require('@modelcontextprotocol/sdk/types.js');

const ANSWERS = { name: 'Ada', color: 'green', confirm: true };

// The requests, each with the status and the replica of its response once there is one.
const requests = [];
const questions = [];
const logs = [];
const progress = [];

async function connect(to, record) {
    let watched;
    const settled = new Promise(settle => (watched = settle));

    async function recordingFetch(input, init) {
        const what = init.method === 'POST' ? (JSON.parse(init.body).method ?? 'answer') : init.method;
        const noted = [what];
        record.push(noted);
        const response = await fetch(input, init);
        noted.push(response.status, response.headers.get('x-gateway-replica'));
        if (what === 'GET') watched();
        return response;
    }

    const client = new Client(
        { name: 'typescript-test', version: '1.0.0' },
        { capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} } }
    );
    client.setRequestHandler(ElicitRequestSchema, async request => {
        questions.push(request.params.message);
        const [property] = Object.keys(request.params.requestedSchema.properties);
        return { action: 'accept', content: { [property]: ANSWERS[property] } };
    });
    client.setRequestHandler(CreateMessageRequestSchema, async () => ({
        role: 'assistant',
        content: { type: 'text', text: 'Hello,' },
        model: 'none'
    }));
    client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: 'file:///tmp' }] }));
    client.setNotificationHandler(LoggingMessageNotificationSchema, async told => void logs.push(told.params.data));
    const transport = new StreamableHTTPClientTransport(new URL(to), { fetch: recordingFetch });
    await client.connect(transport);
    await settled; // The client tries once, at any time, to open a stream to listen to.
    return { client, transport };
}

const textOf = result => result.content.map(block => block.text).join('');
const codeOf = request => request.then(() => null, error => error.code);

// Have a tool run as a task that asks the user, and return its states and its result.
async function runTask(client) {
    const states = [];
    const call = { name: 'confirm_delete', arguments: { filename: 'notes.txt' } };
    let taskId;
    for await (const message of client.experimental.tasks.callToolStream(call, undefined, { task: { ttl: 60000 } })) {
        if (message.type === 'taskCreated') taskId = message.task.taskId;
        if (message.task && message.task.status !== states.at(-1)) states.push(message.task.status);
        if (message.type === 'error') throw message.error;
        if (message.type === 'result') {
            const ended = await client.experimental.tasks.getTask(taskId);
            return [...states, ended.status, textOf(message.result)];
        }
    }
}

// Have the replicas restarted.
async function restart() {
    console.log('restart');
    await once(process.stdin, 'data');
    process.stdin.destroy();
}

// Cancel a running call and return whether it ended here; other tests check the tool's side.
async function cancel(to) {
    const { client } = await connect(to, []);
    const canceller = new AbortController();
    const options = { signal: canceller.signal, onprogress: () => canceller.abort('enough') };
    const ended = await client.callTool({ name: 'hold' }, undefined, options).then(() => false, () => true);
    await client.ping();
    await client.close();
    return ended;
}

const { client, transport } = await connect(url, requests);
const call = async (name, options) => textOf(await client.callTool({ name }, undefined, options));
await client.setLoggingLevel('info');
const saw = {
    protocol: transport.protocolVersion,
    text: await call('test_simple_text'),
    structured: (await client.callTool({ name: 'add', arguments: { numbers: [1, 2, 39] } })).structuredContent,
    unknown_prompt: await codeOf(client.getPrompt({ name: 'nobody' })),
    unknown_resource: await codeOf(client.readResource({ uri: 'test://nowhere' })),
    slow: await call('test_tool_with_progress', { onprogress: told => progress.push([told.progress, told.total]) }),
    logged: await call('test_tool_with_logging'),
    asked: await call('test_input_required_result_multi_round'),
    asked_at_once: await call('test_input_required_result_multiple_inputs'),
    task: await runTask(client)
};
await restart();
saw.after_restart = await call('test_simple_text');
saw.asked_after_restart = await call('test_input_required_result_elicitation');
while (requests.some(request => request.length === 1)) await new Promise(wait => setTimeout(wait, 50));
await transport.terminateSession();
await client.close();
saw.cancelled = await cancel(replicaUrl);
console.log(JSON.stringify({ ...saw, progress, questions, logs, requests }));
