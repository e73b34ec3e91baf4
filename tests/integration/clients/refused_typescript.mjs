// Has a client of the TypeScript SDK call a tool until it is refused, and prints the message for its user.
// Usage: node refused_typescript.mjs FOLDER MAJOR URL TOKEN LATER-TOKEN TOOL CALLS, where FOLDER has the client of that
// major version in its node_modules. It connects with one token, then makes so many calls at once with the other.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [folder, major, url, token, laterToken, name, calls] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const { Client, StreamableHTTPClientTransport } =
    major === '1'
        ? {
              ...require('@modelcontextprotocol/sdk/client/index.js'),
              ...require('@modelcontextprotocol/sdk/client/streamableHttp.js')
          }
        : require('@modelcontextprotocol/client');

let authorization = `Bearer ${token}`;
const authorized = (input, init) => {
    const headers = new Headers(init.headers);
    headers.set('authorization', authorization);
    return fetch(input, { ...init, headers });
};

const client = new Client({ name: 'typescript-test', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: authorized }));
authorization = `Bearer ${laterToken}`;
await Promise.all(Array.from({ length: Number(calls) }, () => client.callTool({ name }))).then(
    () => process.exit(0),
    error => process.stdout.write([error.message, error.errorDescription].join(' '), () => process.exit(0))
);
