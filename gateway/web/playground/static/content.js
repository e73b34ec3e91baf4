// Results by kind. Nothing of them is markup: SVG is shown as an image, and links show their address.

import { Copy, Json, Link, html, shown, size, useEffect, useState } from "./view.js";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;
const AUDIO = /^audio\/(wav|x-wav|mpeg|mp3|ogg|webm|mp4|aac|flac)$/;

function useBlob(data, type) {
  const [url, setUrl] = useState(null);
  useEffect(() => {
    let made = null;
    try {
      made = URL.createObjectURL(new Blob([bytes(data)], { type }));
    } catch {
      made = null;
    }
    setUrl(made);
    return () => made && URL.revokeObjectURL(made);
  }, [data, type]);
  return url;
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function Media({ block }) {
  const isImage = IMAGES.test(block.mimeType);
  const url = useBlob(block.data, block.mimeType);
  if (url === null) return html`<p class="quiet-text">${block.mimeType} that cannot be shown</p>`;
  return isImage
    ? html`<img class="media" src=${url} alt=${`an image of type ${block.mimeType}`} />`
    : html`<audio class="media" controls src=${url}></audio>`;
}

/** The contents of a resource. */
export function Contents({ contents }) {
  const type = contents.mimeType ?? "";
  return html`<div class="block">
    <div class="row"><code>${contents.uri}</code> <span class="quiet-text">${type}</span></div>
    ${contents.text !== undefined
      ? html`<pre class="text" tabindex="0">${contents.text}</pre>`
      : IMAGES.test(type) || AUDIO.test(type)
        ? html`<${Media} block=${{ data: contents.blob, mimeType: type }} />`
        : html`<p class="quiet-text">${size(Math.floor(((contents.blob ?? "").length * 3) / 4))} of data</p>`}
  </div>`;
}

export function Block({ block }) {
  switch (block?.type) {
    case "text":
      return html`<pre class="text" tabindex="0">${block.text}</pre>`;
    case "image":
      return IMAGES.test(block.mimeType) ? html`<${Media} block=${block} />` : html`<${Json} value=${{ ...block, data: "…" }} />`;
    case "audio":
      return AUDIO.test(block.mimeType) ? html`<${Media} block=${block} />` : html`<${Json} value=${{ ...block, data: "…" }} />`;
    case "resource":
      return html`<${Contents} contents=${block.resource ?? {}} />`;
    case "resource_link":
      return html`<p>${block.title ?? block.name}: <${Link} href=${block.uri} /></p>`;
    default:
      return html`<${Json} value=${block} />`;
  }
}

/** The result of a tool, a prompt or a resource. */
export function Result({ result }) {
  const blocks = Array.isArray(result.content) ? result.content : [];
  return html`<div class="result">
    ${blocks.map((block, place) => html`<${Block} key=${place} block=${block} />`)}
    ${Array.isArray(result.messages) &&
    result.messages.map((message, place) => html`<div class="message" key=${place}><span class="chip">${message.role}</span><${Block} block=${message.content} /></div>`)}
    ${Array.isArray(result.contents) && result.contents.map((each, place) => html`<${Contents} key=${place} contents=${each} />`)}
    ${result.structuredContent !== undefined &&
    html`<details open=${blocks.length === 0}><summary>Structured content</summary><${Json} value=${result.structuredContent} /></details>`}
    <details class="raw"><summary>The whole result</summary><${Json} value=${result} /><${Copy} text=${() => shown(result)} label="Copy" /></details>
  </div>`;
}

const ADVICE = {
  [-32700]: "The arguments are not valid JSON.",
  [-32602]: "Check the arguments. If this was an answer, the state is expired, changed, or belongs to another call or user.",
  [-32601]: "This server does not have that method.",
  [-32021]: "The tool needs something that this client did not declare.",
  [-32020]: "A header does not match the body. A proxy may have changed one of them.",
  [-31001]: "The replica is busy or leaving, and nothing has run. Send it again.",
  [-31003]: "You have reached a limit. Wait a moment, then send it again.",
  [-31004]: "The task store did not answer. It is not known whether the request had an effect.",
};

/** An error, and what to do about it. */
export function Problem({ error, status, challenge }) {
  const scope = /scope="([^"]+)"/.exec(challenge ?? "")?.[1];
  let advice = ADVICE[error.code] ?? "";
  if (status === 401) advice = "The token is missing, expired or not accepted. Enter another one.";
  if (status === 403) advice = scope ? `The token lacks a scope. Get one that has: ${scope}.` : "This caller or page may not do that.";
  return html`<div class="problem-box" role="alert">
    <strong>${error.message}</strong>
    ${error.code !== undefined && html` <code>${String(error.code)}</code>`}${status && status !== 200 ? html` <span class="quiet-text">HTTP ${status}</span>` : null}
    ${advice && html`<p>${advice}</p>`}
    ${error.data !== undefined && error.data !== null && html`<details><summary>Data</summary><${Json} value=${error.data} /></details>`}
  </div>`;
}
