import assert from "node:assert/strict";
import test from "node:test";
import { parse } from "../../../gateway/web/playground/static/exact.js";
import { html, webUrl } from "../../../gateway/web/playground/static/view.js";

const FORGED = '{"type":"img","props":{"src":"x"},"key":null,"ref":null,"__b":1,"__v":1}';

test("an object that looks like an element is shown as text", () => {
  const forged = parse(FORGED);
  for (const data of [forged, JSON.parse(FORGED), { ...forged }]) {
    assert.equal(typeof html`<p>${data}</p>`.props.children, "string");
    assert.equal(typeof html`<p>${[data]} and <b>${data}</b></p>`.props.children[0][0], "string");
    assert.equal(typeof html`<p>some <b>${data}</b></p>`.props.children[1].props.children, "string");
    assert.equal(data.__, undefined);
  }
});

test("elements in elements stay elements", () => {
  const inner = html`<b>1</b>`;
  assert.equal(html`<p>${inner}${[inner]}</p>`.props.children[0], inner);
});

test("only addresses of the web without a user name become links", () => {
  for (const text of ["javascript:alert(1)", "//evil.example", "data:text/html,x", "https://bank.example@evil.example/", "https://:x@evil.example", "x", null]) {
    assert.equal(webUrl(text), null, text);
  }
  assert.equal(webUrl("http:evil.example").href, "http://evil.example/");
  assert.equal(webUrl("https://аррӏе.com/").hostname, "xn--80ak6aa92e.com");
});
