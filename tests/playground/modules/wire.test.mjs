import assert from "node:assert/strict";
import test from "node:test";
import { parse } from "../../../gateway/web/playground/static/exact.js";
import { EventReader } from "../../../gateway/web/playground/static/sse.js";
import { Client, NoAnswer, RpcError, headerValue, paramHeaders } from "../../../gateway/web/playground/static/wire.js";

const STREAM = 'data: {"a":1}\r\n\r\n: a comment\n\nevent: message\nid: 7\ndata: é\ndata:second\n\n\ndata\r\rdata: end\n\n';
const EVENTS = ['{"a":1}', "é\nsecond", "", "end"];

test("any cut of a stream gives the same events", () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (let size = 1; size <= bytes.length; size += 1) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...reader.take(bytes.slice(at, at + size)));
    assert.deepEqual(events, EVENTS, `cut every ${size} bytes`);
  }
});

test("an event that is cut off is not an event", () => {
  assert.deepEqual(new EventReader().take(new TextEncoder().encode("data: half")), []);
});

test("header values beyond printable ASCII have the encoding of the protocol", () => {
  assert.equal(headerValue("update_work_item"), "update_work_item");
  assert.equal(headerValue("Zürich"), "=?base64?WsO8cmljaA==?=");
  assert.equal(headerValue(" padded "), "=?base64?IHBhZGRlZCA=?=");
  assert.equal(headerValue("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
});

test("marked arguments are repeated in headers", () => {
  const schema = { properties: { city: { type: "string", "x-mcp-header": "City" }, at: { properties: { n: { "x-mcp-header": "N" } } } } };
  assert.deepEqual(paramHeaders(schema, { city: "Zürich", at: { n: 5 } }), { "Mcp-Param-City": "=?base64?WsO8cmljaA==?=", "Mcp-Param-N": "5" });
  assert.deepEqual(paramHeaders(schema, {}), {});
});

function answering(...bodies) {
  const sent = [];
  const fetcher = async (url, options) => {
    sent.push({ url, ...options, message: JSON.parse(options.body) });
    const [type, body, status = 200] = bodies.shift();
    return new Response(body, { status, headers: { "content-type": type, "x-gateway-replica": "r2" } });
  };
  return { client: new Client({ token: () => "secret", fetcher }), sent };
}

test("a request says all that the protocol wants, and the token goes to the endpoint only", async () => {
  const { client, sent } = answering(["application/json", '{"jsonrpc":"2.0","id":1,"result":{}}']);
  const answer = await client.request("tools/call", { name: "echo", arguments: {} }, { replica: "r2" });
  assert.equal(answer.replica, "r2");
  assert.equal(sent[0].url, "playground/replicas/r2/mcp");
  assert.equal(sent[0].headers["Mcp-Name"], "echo");
  assert.equal(sent[0].headers.Authorization, "Bearer secret");
  assert.equal(sent[0].message.params._meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
  assert(!sent[0].url.includes("secret") && !sent[0].body.includes("secret"));
});

test("notifications come before the answer, and the answer ends the stream", async () => {
  const { client } = answering(["text/event-stream",
    'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\ndata: {"jsonrpc":"2.0","id":1,"result":{"ok":true}}\n\n']);
  const seen = [];
  const answer = await client.request("tools/call", { name: "x" }, { onMessage: (message) => seen.push(message.method) });
  assert.deepEqual(seen, ["notifications/progress"]);
  assert.equal(answer.message.result.ok, true);
});

test("a stream that ends too early and an answer that is not JSON are errors", async () => {
  const { client } = answering(["text/event-stream", "data: {}\n\n"], ["text/html", "<p>Bad gateway", 502]);
  await assert.rejects(client.request("tools/list"), NoAnswer);
  await assert.rejects(client.request("tools/list"), /answered 502/);
});

test("all pages of a list are read", async () => {
  const { client, sent } = answering(
    ["application/json", '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}],"nextCursor":"c"}}'],
    ["application/json", '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"b"}]}}']);
  assert.deepEqual((await client.list("tools/list")).map((tool) => tool.name), ["a", "b"]);
  assert.equal(sent[1].message.params.cursor, "c");
});

test("an error of the server has its code and its message", async () => {
  const { client } = answering(["application/json", '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: x"}}', 400]);
  await assert.rejects(client.result("tools/call", { name: "x" }), (error) => error instanceof RpcError && error.code === -32602);
});

test("events that are not messages are skipped, and the stream is closed after the answer", async () => {
  let isClosed = false;
  const stream = new ReadableStream({
    start: (control) => control.enqueue(new TextEncoder().encode('data: null\n\ndata: [1]\n\ndata: {\n\ndata\n\ndata: {"id":1,"result":{}}\n\n')),
    cancel: () => { isClosed = true; },
  });
  const fetcher = async () => new Response(stream, { headers: { "content-type": "text/event-stream" } });
  assert.deepEqual((await new Client({ fetcher }).request("tools/list")).message.id, 1);
  assert(isClosed);
});

test("an answer that is JSON but not a message is an error", async () => {
  for (const body of ["null", "[]", "1"]) {
    await assert.rejects(answering(["application/json", body]).client.request("tools/list"), NoAnswer);
  }
});

test("only plain values go into headers", () => {
  const schema = { properties: { a: { "x-mcp-header": "A" }, n: { "x-mcp-header": "N" } } };
  assert.deepEqual(paramHeaders(schema, parse('{"a":{"b":1},"n":9007199254740993}')), { "Mcp-Param-N": "9007199254740993" });
});
