// An authorization server for tests: `oidc-provider`, with one user who signs in and agrees to everything.
//
// Usage: authorization_server.mjs NODE_ENVIRONMENT SETTINGS
// The settings are a JSON object: `resource` is the one that tokens are issued for (RFC 8707), `scopes` are what a token
// for it may grant, and `allowed` what this user may have of them. It prints its issuer as the first line, and then a
// JSON object a line for each authorization request, with what the client asked for.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [environment, text] = process.argv.slice(2);
const { resource, scopes, allowed } = JSON.parse(text);
const require = createRequire(`${environment}/package.json`);
const { default: Provider, errors } = await import(pathToFileURL(require.resolve("oidc-provider")));

const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const key = { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), alg: "ES256", use: "sig" };

function resourceServer(_context, indicator) {
  if (indicator !== resource) throw new errors.InvalidTarget();
  return { audience: resource, scope: scopes.join(" "), accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } };
}

const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  jwks: { keys: [key] },
  ttl: Object.fromEntries(["AccessToken", "Grant", "IdToken", "Interaction", "RefreshToken", "Session"].map((name) => [name, 600])),
  cookies: { keys: [randomUUID()] },
  scopes: ["openid", "offline_access", ...scopes],
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  findAccount: (_context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  interactions: { url: (_context, interaction) => `/interaction/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer, useGrantedResource: () => true },
  },
});

// A client registers with the scopes that it needs at first. A server that held it to these would never grant more.
Object.defineProperty(provider.Client.prototype, "scope", { get: () => undefined, set: () => {} });

async function agree(request, response) {
  const { prompt, params } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    await provider.interactionFinished(request, response, { login: { accountId: "ada" } });
    return;
  }
  const grant = new provider.Grant({ accountId: "ada", clientId: params.client_id });
  grant.addOIDCScope(["openid", "offline_access", ...scopes].join(" "));
  grant.addResourceScope(resource, allowed.join(" "));
  grant.rejectResourceScope(resource, scopes.filter((scope) => !allowed.includes(scope)).join(" "));
  await provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

const serve = provider.callback();
server.on("request", (request, response) => {
  const url = new URL(request.url, issuer);
  if (url.pathname === "/auth") {
    console.log(JSON.stringify(Object.fromEntries(url.searchParams)));
  }
  if (url.pathname.startsWith("/interaction/")) {
    agree(request, response).catch((error) => response.writeHead(500).end(String(error)));
  } else {
    serve(request, response);
  }
});
console.log(issuer);
process.stdin.resume().on("end", () => process.exit());
