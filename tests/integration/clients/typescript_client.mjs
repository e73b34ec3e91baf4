// Drives a gateway with the TypeScript SDK's client and prints what it saw as one JSON object.
// Usage: node typescript_client.mjs URL FOLDER, where FOLDER has the client in its node_modules.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [url, folder] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const ANSWERS = { name: 'Ada', color: 'green', context: 'sailing', key: 'sesame' };
const questions = [];
const legs = {};

async function recordingFetch(input, init) {
    const response = await fetch(input, init);
    const target = new Headers(init?.headers).get('mcp-name');
    if (target) (legs[target] ??= []).push(response.headers.get('x-gateway-replica'));
    return response;
}

const client = new Client(
    { name: 'typescript-test', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
);
client.setRequestHandler('elicitation/create', async request => {
    questions.push(request.params.message);
    const [property] = Object.keys(request.params.requestedSchema.properties);
    return { action: 'accept', content: { [property]: ANSWERS[property] } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: recordingFetch }));

const textOf = result => result.content.map(block => block.text).join('');
const messageOf = result => result.messages.map(message => message.content.text).join('');
const contentsOf = result => result.contents.map(part => part.text).join('');

const progress = [];
const saw = {
    protocol: client.getNegotiatedProtocolVersion(),
    tools: (await client.listTools()).tools.map(tool => tool.name),
    prompts: (await client.listPrompts()).prompts.map(prompt => prompt.name),
    resources: (await client.listResources()).resources.map(resource => resource.uri),
    templates: (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate),
    text: textOf(await client.callTool({ name: 'test_simple_text' })),
    structured: (await client.callTool({ name: 'add', arguments: { numbers: [1, 2, 39] } })).structuredContent,
    header: textOf(await client.callTool({ name: 'test_x_mcp_header', arguments: { region: 'Zürich ✓' } })),
    slow: textOf(
        await client.callTool(
            { name: 'test_tool_with_progress' },
            { onprogress: told => progress.push([told.progress, told.total]) }
        )
    ),
    asked_tool: textOf(await client.callTool({ name: 'test_input_required_result_multi_round' })),
    read: contentsOf(await client.readResource({ uri: 'test://static-text' })),
    read_template: JSON.parse(contentsOf(await client.readResource({ uri: 'test://template/123/data' }))),
    asked_resource: contentsOf(await client.readResource({ uri: 'vault://treasury' })),
    prompt: messageOf(
        await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'one', arg2: 'two' } })
    ),
    asked_prompt: messageOf(await client.getPrompt({ name: 'test_input_required_result_prompt' })),
    completion: (
        await client.complete({
            ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
            argument: { name: 'arg1', value: 'test' }
        })
    ).completion.values
};
await client.close();
console.log(JSON.stringify({ ...saw, progress, questions, legs }));
