// The fixtures of the official suite as a server of 2025-11-25 has them: of the TypeScript SDK 1.x, in sessions.
// Usage: node session_fixtures.mjs FOLDER http|stdio, where FOLDER has the SDK in its node_modules. With `http`, it prints
// where it serves.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const [folder, form] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const PAUSE_MS = 50;
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=';

const text = value => ({ type: 'text', text: value });
const said = (...content) => ({ content });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });
const object = (properties = {}, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const string = { type: 'string' };

const ADDRESS = { $anchor: 'addressDef', ...object({ street: string, city: string }, []) };
delete ADDRESS.required;
const KEYWORDS = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: ADDRESS },
    properties: {
        name: string,
        address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] },
        phone: string,
        email: string
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false
};

const DEFAULTS = object({
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true }
}, []);

const options = ['option1', 'option2', 'option3'];
const titled = [1, 2, 3].map(number => ({ const: `value${number}`, title: `Option ${number}` }));
const CHOICES = object({
    untitledSingle: { type: 'string', enum: options },
    titledSingle: { type: 'string', oneOf: titled },
    legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
    titledMulti: { type: 'array', items: { anyOf: titled } }
}, []);

async function asked(extra, message, requestedSchema) {
    const params = { message, requestedSchema };
    const answer = await extra.sendRequest({ method: 'elicitation/create', params }, types.ElicitResultSchema);
    return said(text(`Elicitation completed: action: ${answer.action}, content: ${JSON.stringify(answer.content)}`));
}

async function sampled({ prompt }, extra) {
    const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 };
    const answer = await extra.sendRequest({ method: 'sampling/createMessage', params }, types.CreateMessageResultSchema);
    return said(text(`LLM response: ${answer.content.text}`));
}

async function progressed(_arguments, extra) {
    for (const progress of [0, 50, 100]) {
        const params = { progressToken: extra._meta?.progressToken ?? 0, progress, total: 100 };
        await extra.sendNotification({ method: 'notifications/progress', params });
        await pause(PAUSE_MS);
    }
    return said(text('Done'));
}

async function logged(_arguments, extra) {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
        await pause(PAUSE_MS);
    }
    return said(text('Done'));
}

async function reconnected(_arguments, extra) {
    const params = { level: 'info', data: 'The stream ends here' };
    await extra.sendNotification({ method: 'notifications/message', params });
    extra.closeSSEStream?.();
    await pause(2 * PAUSE_MS);
    return said(text('Reconnection test completed'));
}

// Each tool: what it does, and its arguments. The suite calls the first one without any.
const TOOLS = {
    test_simple_text: [() => said(text('This is a simple text response for testing.'))],
    test_image_content: [() => said(image)],
    test_audio_content: [() => said({ type: 'audio', data: WAV, mimeType: 'audio/wav' })],
    test_embedded_resource: [
        () => said(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.'))
    ],
    test_multiple_content_types: [
        () => said(text('Several kinds'), image, embedded('test://mixed-content-resource', 'application/json', '{}'))
    ],
    test_error_handling: [
        () => ({ ...said(text('This tool intentionally returns an error for testing')), isError: true })
    ],
    test_tool_with_progress: [progressed],
    test_tool_with_logging: [logged],
    test_sampling: [sampled, object({ prompt: string })],
    test_elicitation: [
        ({ message }, extra) => asked(extra, message, object({ username: string, email: string })),
        object({ message: string })
    ],
    test_elicitation_sep1034_defaults: [(_, extra) => asked(extra, 'Please review the form', DEFAULTS)],
    test_elicitation_sep1330_enums: [(_, extra) => asked(extra, 'Please select options', CHOICES)],
    test_reconnection: [reconnected],
    json_schema_2020_12_tool: [() => said(text('Received')), KEYWORDS]
};

const TEMPLATE = /^test:\/\/template\/([^/]+)\/data$/;
const READ = {
    'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
    'test://static-binary': { mimeType: 'image/png', blob: PNG },
    'test://watched-resource': { mimeType: 'text/plain', text: 'This is watched' }
};

function read(uri) {
    const [, id] = TEMPLATE.exec(uri) ?? [];
    const templated = { mimeType: 'application/json', text: JSON.stringify({ id, data: `Data for ID: ${id}` }) };
    const content = id === undefined ? READ[uri] : templated;
    if (content === undefined) throw new types.McpError(-32602, 'Resource not found', { uri });
    return { contents: [{ uri, ...content }] };
}

const user = content => ({ role: 'user', content });
const PROMPTS = {
    test_simple_prompt: [() => [user(text('This is a simple prompt for testing.'))], []],
    test_prompt_with_arguments: [
        ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
        ['arg1', 'arg2']
    ],
    test_prompt_with_embedded_resource: [
        ({ resourceUri }) => [
            user(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
            user(text('Please process it.'))
        ],
        ['resourceUri']
    ],
    test_prompt_with_image: [() => [user(image), user(text('Please analyse it.'))], []]
};

const HANDLED = [
    [types.ListToolsRequestSchema, () => ({
        tools: Object.entries(TOOLS).map(([name, [, inputSchema = object()]]) => ({
            name, description: `The fixture ${name}`, inputSchema
        }))
    })],
    [types.CallToolRequestSchema, ({ params }, extra) => {
        if (!Object.hasOwn(TOOLS, params.name)) throw new types.McpError(-32602, `Unknown tool: ${params.name}`);
        return TOOLS[params.name][0](params.arguments ?? {}, extra);
    }],
    [types.ListResourcesRequestSchema, () => ({
        resources: Object.entries(READ).map(([uri, { mimeType }]) => ({
            uri, name: uri.slice(7), description: 'A fixture', mimeType
        }))
    })],
    [types.ListResourceTemplatesRequestSchema, () => ({
        resourceTemplates: [
            { uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }
        ]
    })],
    [types.ReadResourceRequestSchema, ({ params }) => read(params.uri)],
    [types.SubscribeRequestSchema, () => ({})],
    [types.UnsubscribeRequestSchema, () => ({})],
    [types.ListPromptsRequestSchema, () => ({
        prompts: Object.entries(PROMPTS).map(([name, [, names]]) => ({
            name,
            description: `The fixture ${name}`,
            arguments: names.map(each => ({ name: each, description: `The argument ${each}`, required: true }))
        }))
    })],
    [types.GetPromptRequestSchema, ({ params }) => ({ messages: PROMPTS[params.name][0](params.arguments ?? {}) })],
    [types.CompleteRequestSchema, () => ({ completion: { values: ['testing'], total: 1, hasMore: false } })]
];

function made() {
    const capabilities = {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        completions: {},
        logging: {}
    };
    const server = new Server({ name: 'session-fixtures', version: '1' }, { capabilities });
    for (const [schema, handler] of HANDLED) server.setRequestHandler(schema, handler);
    return server;
}

class Events {
    // Keeps the events of one session, so that a broken stream can be resumed.
    #kept = [];

    async storeEvent(streamId, message) {
        this.#kept.push({ streamId, message });
        return `${this.#kept.length}`;
    }

    async getStreamIdForEventId(eventId) {
        return this.#kept[Number(eventId) - 1]?.streamId;
    }

    async replayEventsAfter(eventId, { send }) {
        const streamId = await this.getStreamIdForEventId(eventId);
        for (const [index, event] of this.#kept.entries()) {
            if (index >= Number(eventId) && event.streamId === streamId) await send(`${index + 1}`, event.message);
        }
        return streamId;
    }
}

const sessions = new Map();

async function served(request, response, hosts) {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined && !sessions.has(id)) {
        response.writeHead(404).end('Session not found');
        return;
    }
    let transport = sessions.get(id);
    if (transport === undefined) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            eventStore: new Events(),
            retryInterval: 2 * PAUSE_MS,
            enableDnsRebindingProtection: true,
            allowedHosts: hosts,
            onsessioninitialized: opened => sessions.set(opened, transport),
            onsessionclosed: closed => sessions.delete(closed)
        });
        await made().connect(transport);
    }
    await transport.handleRequest(request, response);
}

if (form === 'stdio') {
    await made().connect(new StdioServerTransport());
} else {
    const listener = createServer((request, response) => served(request, response, [`127.0.0.1:${listener.address().port}`]));
    listener.listen(0, '127.0.0.1', () => console.log(`ready on http://127.0.0.1:${listener.address().port}/mcp`));
}
