// A server of the TypeScript SDK 1.x. Without sessions, each request has a server of its own.
// Usage: node upstream_typescript1.mjs FOLDER PORT [json|sessions], where FOLDER has the SDK in its node_modules. With the
// port `stdio`, it is a server of one client, as bridges start it.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { resolve } from 'node:path';

const [folder, port, form] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { McpServer, ResourceTemplate } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { InMemoryTaskStore } = require('@modelcontextprotocol/sdk/experimental/tasks');
const { ElicitResultSchema } = require('@modelcontextprotocol/sdk/types.js');
const { z } = require('zod');

const taskStore = new InMemoryTaskStore(); // of all servers, since each request may have one of its own
const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
const STUDY_MS = 100;

const text = value => ({ content: [{ type: 'text', text: value }] });

function made() {
    const server = new McpServer({ name: 'typescript1', version: '1' }, { capabilities: { tasks }, taskStore });
    server.registerTool('echo', { inputSchema: { text: z.string() } }, ({ text: said }) => text(said));
    const sum = { inputSchema: { a: z.number(), b: z.number() }, outputSchema: { result: z.number() } };
    server.registerTool('add', sum, ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { result: a + b } }));
    const image = { type: 'image', data: 'iVBORw==', mimeType: 'image/png' };
    server.registerTool('picture', {}, () => ({ content: [image] }));
    server.registerTool('broken', {}, () => {
        throw new Error('in its own words');
    });
    server.registerTool('ask', {}, async extra => {
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
        const params = { mode: 'form', message: 'What is your name?', requestedSchema };
        return text((await extra.sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema)).action);
    });
    server.experimental.tasks.registerToolTask('study', { inputSchema: { of: z.string() } }, {
        createTask: async ({ of }, { taskStore: own, taskRequestedTtl: ttl, sessionId }) => {
            const task = await own.createTask({ ttl, pollInterval: STUDY_MS });
            // The server of this request may have been closed by then.
            const ended = () => taskStore.storeTaskResult(task.taskId, 'completed', text(`studied ${of}`), sessionId);
            setTimeout(ended, STUDY_MS);
            return { task };
        },
        getTask: (_, { taskStore: own, taskId }) => own.getTask(taskId),
        getTaskResult: (_, { taskStore: own, taskId }) => own.getTaskResult(taskId)
    });
    let calls = 0;
    server.registerTool('count', {}, () => text(`${++calls}`));
    server.registerTool('ask_aside', {}, async () => {
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
        return text((await server.server.elicitInput({ message: 'What is your name?', requestedSchema })).action);
    });
    server.registerTool('steps', {}, async extra => {
        const params = { progressToken: extra._meta?.progressToken, progress: 1, total: 2, message: 'half' };
        await extra.sendNotification({ method: 'notifications/progress', params });
        return text('done');
    });
    server.registerPrompt('greeting', { argsSchema: { name: z.string() } }, ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }]
    }));
    const contents = (uri, value) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: value }] });
    server.registerResource('today', 'note://today', {}, uri => contents(uri, 'a note'));
    const template = new ResourceTemplate('item://{number}', { list: undefined });
    server.registerResource('item', template, {}, (uri, { number }) => contents(uri, `item ${number}`));
    return server;
}

const sessions = new Map();

async function inSession(request, response) {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined && !sessions.has(id)) {
        response.writeHead(404).end('Session not found');
        return;
    }
    let transport = sessions.get(id);
    if (transport === undefined) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: opened => sessions.set(opened, transport),
            onsessionclosed: closed => sessions.delete(closed)
        });
        await made().connect(transport);
    }
    await transport.handleRequest(request, response);
}

const listener = createServer(async (request, response) => {
    if (form === 'sessions') return inSession(request, response);
    if (request.method !== 'POST') {
        response.writeHead(405).end();
        return;
    }
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: undefined,
        enableJsonResponse: form === 'json'
    });
    const server = made();
    response.on('close', () => {
        transport.close();
        server.close();
    });
    await server.connect(transport);
    await transport.handleRequest(request, response);
});
if (port === 'stdio') await made().connect(new StdioServerTransport());
else listener.listen(Number(port), '127.0.0.1');
