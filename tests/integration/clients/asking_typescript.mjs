// A server that asks its user, of the TypeScript SDK 1.x or 2, in sessions.
// Usage: node asking_typescript.mjs FOLDER 1|2 PORT, where FOLDER has the SDK in its node_modules. With the port `stdio`, it
// is a server on its standard streams. The end of each question is noted in TEST_DIRECTORY.

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const [folder, sdk, port] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const first = sdk === '1';
const { McpServer } = require(first ? '@modelcontextprotocol/sdk/server/mcp.js' : '@modelcontextprotocol/server');
const { StdioServerTransport } =
    require(first ? '@modelcontextprotocol/sdk/server/stdio.js' : '@modelcontextprotocol/server/stdio');
const HttpTransport = first
    ? require('@modelcontextprotocol/sdk/server/streamableHttp.js').StreamableHTTPServerTransport
    : require('@modelcontextprotocol/node').NodeStreamableHTTPServerTransport;
const { z } = require('zod');

const text = value => ({ content: [{ type: 'text', text: value }] });
const requestedSchema = { type: 'object', properties: { sure: { type: 'string' } }, required: ['sure'] };

function note(who, question, came) {
    appendFileSync(join(process.env.TEST_DIRECTORY, 'asked'), `${JSON.stringify({ who, question, ...came })}\n`);
}

function made() {
    const server = new McpServer({ name: 'asking', version: '1' }, { capabilities: { logging: {} } });
    const added = (name, shape, run) => server.registerTool(name, { inputSchema: z.object(shape) }, run);

    // `how` is `related`, or `aside`: the question does not name the call.
    const options = (context, { how, seconds }) => ({
        ...(how === 'aside' ? {} : { relatedRequestId: context.requestId ?? context.mcpReq.id }),
        ...(seconds === undefined ? {} : { timeout: 1000 * seconds })
    });

    async function asked(context, given, question) {
        try {
            const params = { mode: 'form', message: question, requestedSchema };
            const asking = first ? server.server : context.mcpReq;
            const answer = await asking.elicitInput(params, options(context, given));
            note(given.who, question, { action: answer.action, sure: answer.content?.sure ?? null });
        } catch (error) {
            note(given.who, question, { problem: error.message });
            throw error;
        }
    }

    const shape = { who: z.string(), how: z.string().optional(), seconds: z.number().optional() };
    added('delete', shape, async (given, context) => {
        for (const files of [3, 300]) await asked(context, given, `Delete ${files} files of ${given.who}?`);
        return text('deleted');
    });
    added('several', shape, async (given, context) => {
        await Promise.all([3, 30, 300].map(files => asked(context, given, `Delete ${files} files of ${given.who}?`)));
        return text('deleted');
    });
    added('report', shape, async (given, context) => {
        const token = (first ? context._meta : context.mcpReq._meta)?.progressToken;
        const report = (progress, message) => {
            const params = { progressToken: token, progress, total: 2, message };
            const notice = { method: 'notifications/progress', params };
            return first ? context.sendNotification(notice) : context.mcpReq.notify(notice);
        };
        await report(1, 'before');
        await asked(context, given, `Delete 3 files of ${given.who}?`);
        await report(2, 'after');
        return text('deleted');
    });
    added('sample', { ...shape, with_tools: z.boolean().optional() }, async (given, context) => {
        for (const number of [1, 2]) {
            const question = `Title ${number} for ${given.who}?`;
            const params = { messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens: 10 };
            if (given.with_tools) params.tools = [{ name: 'search', inputSchema: { type: 'object' } }];
            const answer = await server.server.createMessage(params, options(context, given));
            const [said] = [answer.content].flat();
            note(given.who, question, { action: answer.role, sure: said.text ?? said.name });
        }
        return text('titled');
    });
    added('visit', shape, async (given, context) => {
        for (const number of [1, 2]) {
            const message = `Visit ${number}, ${given.who}?`;
            const url = `https://example.com/${number}`;
            const params = { mode: 'url', message, url, elicitationId: `${given.who}-${number}` };
            const answer = await server.server.elicitInput(params, options(context, given));
            note(given.who, message, { action: answer.action });
        }
        return text('visited');
    });
    added('echo', { text: z.string() }, ({ text: said }) => text(said));
    return server;
}

const sessions = new Map();

async function served(request, response) {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined && !sessions.has(id)) {
        response.writeHead(404).end('Session not found');
        return;
    }
    let transport = sessions.get(id);
    if (transport === undefined) {
        transport = new HttpTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: opened => sessions.set(opened, transport),
            onsessionclosed: closed => sessions.delete(closed)
        });
        await made().connect(transport);
    }
    await transport.handleRequest(request, response);
}

if (port === 'stdio') await made().connect(new StdioServerTransport());
else createServer(served).listen(Number(port), '127.0.0.1');
