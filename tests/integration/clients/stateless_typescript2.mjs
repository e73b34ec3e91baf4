// A server of the TypeScript SDK 2: stateless, for clients of 2026-07-28 and of 2025-11-25.
// Usage: node stateless_typescript2.mjs FOLDER PORT, where FOLDER has the SDK in its node_modules. With the port
// `stdio`, it is a server of one client on its standard streams.

import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { resolve } from 'node:path';

const [folder, port] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { McpServer, ResourceTemplate, UrlElicitationRequiredError, acceptedContent, createMcpHandler, inputRequired } =
    require('@modelcontextprotocol/server');
const { StdioServerTransport } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const visited = new Set();

const text = value => ({ content: [{ type: 'text', text: value }] });
const form = {
    mode: 'form',
    message: 'What is your name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } } }
};

function made() {
    const server = new McpServer({ name: 'typescript2', version: '1' });
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, ({ text: said }) => text(said));
    const sum = {
        inputSchema: z.object({ a: z.number(), b: z.number() }),
        outputSchema: z.object({ result: z.number() })
    };
    server.registerTool('add', sum, ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { result: a + b } }));
    const image = { type: 'image', data: 'iVBORw==', mimeType: 'image/png' };
    server.registerTool('picture', {}, () => ({ content: [image] }));
    server.registerTool('broken', {}, () => {
        throw new Error('in its own words');
    });
    server.registerTool('sign_in', { inputSchema: z.object({ user: z.string() }) }, ({ user }) => {
        if (visited.has(user)) return text(`signed in: ${user}`);
        visited.add(user);
        const url = `https://example.com/in?user=${user}`;
        throw new UrlElicitationRequiredError([{ mode: 'url', message: 'Please sign in', url, elicitationId: 'e1' }]);
    });
    server.registerTool('ask', {}, async context => text((await context.mcpReq.elicitInput(form)).action));
    server.registerTool('returned', {}, context => {
        const said = acceptedContent(context.mcpReq.inputResponses, 'who');
        return said ? text(`Hello, ${said.name}!`) : inputRequired({ inputRequests: { who: inputRequired.elicit(form) } });
    });
    server.registerTool('steps', {}, async context => {
        const params = { progressToken: context.mcpReq._meta?.progressToken, progress: 1, total: 2, message: 'half' };
        await context.mcpReq.notify({ method: 'notifications/progress', params });
        return text('done');
    });
    server.registerPrompt('greeting', { argsSchema: z.object({ name: z.string() }) }, ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }]
    }));
    const contents = (uri, value) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: value }] });
    server.registerResource('today', 'note://today', {}, uri => contents(uri, 'a note'));
    const template = new ResourceTemplate('item://{number}', { list: undefined });
    server.registerResource('item', template, {}, (uri, { number }) => contents(uri, `item ${number}`));
    return server;
}

const handler = createMcpHandler(made);
const listener = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = request.method === 'POST' ? Buffer.concat(pieces) : undefined;
    const url = `http://127.0.0.1:${port}${request.url}`;
    const answer = await handler.fetch(new Request(url, { method: request.method, headers: request.headers, body }));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const piece of answer.body) response.write(piece);
    response.end();
});
if (port === 'stdio') await made().connect(new StdioServerTransport());
else listener.listen(Number(port), '127.0.0.1');
