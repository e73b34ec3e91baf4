// Fields for JSON Schema. Raw JSON is always possible.

import { parse, stringify } from "./exact.js";
import { choicesOf, fieldsOf, initial, isDrawable, isSame, kindOf, problems as problemsOf, requiredOf, resolve, variants } from "./schema.js";
import { html, own, shown, useState } from "./view.js";

let ids = 0;

/** All fields of an object. `change` gets the new object. */
export function Fields({ schema, root, value, change, problems, path = "" }) {
  const required = requiredOf(schema);
  return html`${fieldsOf(schema).map(
    ([name, member]) => html`<${Field}
      key=${name}
      name=${name}
      path=${path ? `${path}.${name}` : name}
      schema=${resolve(member, root)}
      root=${root}
      isRequired=${required.has(name)}
      value=${own(value, name)}
      problems=${problems}
      change=${(next) => change(without({ ...value, [name]: next }))}
    />`,
  )}`;
}

function without(object) {
  return Object.fromEntries(Object.entries(object).filter(([, member]) => member !== undefined));
}

function Field({ name, path, schema, root, isRequired, value, change, problems }) {
  const [id] = useState(() => `field-${++ids}`);
  const kind = kindOf(schema);
  const problem = own(problems, path);
  const label = schema.title ?? name;
  const isGroup = kind === "object" || kind === "array" || kind === "variants" || kind === "choices";
  const help = html`
    ${schema.description && html`<small id=${`${id}-help`} class="help">${schema.description}</small>`}
    ${problem && html`<small id=${`${id}-problem`} class="problem" role="alert">${shown(label)} ${problem}</small>`}
  `;
  const described = [schema.description && `${id}-help`, problem && `${id}-problem`].filter(Boolean).join(" ") || undefined;
  const field = html`<${Input} ...${{ id, kind, schema, root, value, change, problems, path, isRequired, described, name }} />`;
  if (isGroup) {
    return html`<fieldset class="field" aria-describedby=${described}>
      <legend>${label}${isRequired && html`<span class="required" title="required"> *</span>`}</legend>
      ${field}${help}
    </fieldset>`;
  }
  return html`<div class="field">
    <label for=${id}>${label}${isRequired && html`<span class="required" title="required"> *</span>`}</label>
    ${field}${help}
  </div>`;
}

function Input(given) {
  switch (given.kind) {
    case "object":
      return html`<${Nested} ...${given} />`;
    case "array":
      return html`<${Items} ...${given} />`;
    case "choices":
      return html`<${Choices} ...${given} />`;
    case "variants":
      return html`<${Variants} ...${given} />`;
    case "choice":
      return html`<${Choice} ...${given} />`;
    case "boolean":
      return html`<${Switch} ...${given} />`;
    case "const":
      return html`<output id=${given.id}>${shown(given.schema.const)}</output>`;
    case "number":
      return html`<${NumberField} ...${given} />`;
    case "text":
      return html`<${Text} ...${given} />`;
    default:
      return html`<${Raw} ...${given} />`;
  }
}

const INPUT_TYPES = { email: "email", uri: "url", date: "date" };

/** An object in an object. Without a value it is only offered: its schema may contain itself. */
function Nested(given) {
  const { name, schema, root, value, change, isRequired } = given;
  if (value === undefined || value === null) {
    return html`<button type="button" class="quiet" aria-label=${`add ${name}`} onClick=${() => change(initial(schema, root, true) ?? {})}>Add</button>`;
  }
  return html`<div class="nested"><${Fields} ...${given} />
    ${!isRequired && html`<button type="button" class="quiet" aria-label=${`leave out ${name}`} onClick=${() => change(undefined)}>Leave out</button>`}</div>`;
}

function Text({ id, schema, value, change, described }) {
  const text = value === undefined || value === null ? "" : shown(value);
  // Decided once: another element would lose the focus while the user types.
  const [isLong] = useState(() => !schema.format && (text.length > 60 || text.includes("\n")));
  const input = (event) => change(event.currentTarget.value || undefined);
  return isLong
    ? html`<textarea id=${id} rows="4" value=${text} aria-describedby=${described} onInput=${input}></textarea>`
    : html`<input id=${id} type=${own(INPUT_TYPES, schema.format) ?? "text"} value=${text} autocomplete="off" aria-describedby=${described} onInput=${input} />`;
}

function numberIn(text) {
  if (text === "") return undefined;
  try {
    return parse(text);
  } catch {
    return text;
  }
}

function NumberField({ id, schema, value, change, described }) {
  // The value of "1.0" is 1, but who types "1.05" must be able to pass it.
  const [typed, setTyped] = useState("");
  const text = isSame(numberIn(typed), value) ? typed : value === undefined ? "" : shown(value);
  const input = (event) => {
    const given = event.currentTarget.value.trim();
    setTyped(given);
    change(numberIn(given));
  };
  return html`<input id=${id} inputmode=${schema.type === "integer" ? "numeric" : "decimal"} value=${text}
    autocomplete="off" aria-describedby=${described} onInput=${input} />`;
}

function Switch({ id, value, change, described }) {
  return html`<input id=${id} type="checkbox" checked=${value === true} aria-describedby=${described}
    onChange=${(event) => change(event.currentTarget.checked)} />`;
}

function Choice({ id, schema, value, change, described }) {
  const choices = choicesOf(schema);
  const place = choices.findIndex((choice) => isSame(choice.value, value));
  return html`<select id=${id} aria-describedby=${described} value=${String(place)}
    onChange=${(event) => change(choices[Number(event.currentTarget.value)]?.value)}>
    <option value="-1">choose …</option>
    ${choices.map((choice, number) => html`<option value=${String(number)}>${choice.title}</option>`)}
  </select>`;
}

function Choices({ schema, value, change }) {
  const chosen = Array.isArray(value) ? value : [];
  return html`<div class="choices">${choicesOf(schema.items).map((choice) => {
    const isChosen = chosen.some((each) => isSame(each, choice.value));
    const toggle = () => change(isChosen ? chosen.filter((each) => !isSame(each, choice.value)) : [...chosen, choice.value]);
    return html`<label class="inline"><input type="checkbox" checked=${isChosen} onChange=${toggle} /> ${choice.title}</label>`;
  })}</div>`;
}

function Items({ schema, root, value, change, problems, path, name }) {
  const items = Array.isArray(value) ? value : [];
  const set = (place, item) => change(items.map((other, number) => (number === place ? item : other)));
  const item = resolve(schema.items, root);
  return html`<div class="items">
    ${items.map((each, place) => html`<div class="item" key=${place}>
      <${Field} name=${`${name} ${place + 1}`} path=${`${path}[${place}]`} schema=${item} root=${root} isRequired=${true}
        value=${each} problems=${problems} change=${(next) => set(place, next ?? null)} />
      <button type="button" class="quiet" onClick=${() => change(items.filter((_, number) => number !== place))}>Remove</button>
    </div>`)}
    <button type="button" class="quiet" onClick=${() => change([...items, initial(item, root, true) ?? ""])}>Add</button>
  </div>`;
}

function Variants({ schema, root, value, change, problems, path, name, isRequired }) {
  const all = variants(schema).map((each) => resolve(each, root));
  const [chosen, setChosen] = useState(() => Math.max(0, all.findIndex((each) => value !== undefined && fits(value, each, root))));
  const titles = all.map((each, place) => shown(each.title ?? each.type ?? `form ${place + 1}`));
  const choose = (event) => {
    const place = Number(event.currentTarget.value);
    setChosen(place);
    change(initial(all[place], root, isRequired));
  };
  return html`<div class="nested">
    <select aria-label=${`kind of ${name}`} value=${String(chosen)} onChange=${choose}>
      ${titles.map((title, place) => html`<option value=${String(place)}>${title}</option>`)}
    </select>
    <${Field} key=${chosen} name=${titles[chosen]} path=${path} schema=${all[chosen]} root=${root} isRequired=${isRequired}
      value=${value} problems=${problems} change=${change} />
  </div>`;
}

function fits(value, schema, root) {
  return Object.keys(problemsOf(value, schema, root)).length === 0;
}

function hint(schema) {
  const type = schema?.additionalProperties?.type;
  return typeof type === "string" ? `JSON, such as {"name": ${type === "string" ? '"text"' : "…"}}` : "JSON";
}

function valueIn(text) {
  return text.trim() === "" ? undefined : parse(text);
}

function written(value) {
  return value === undefined ? "" : stringify(value, "  ");
}

function Raw({ id, schema, value, change, described }) {
  const [text, setText] = useState(() => written(value));
  const [problem, setProblem] = useState("");
  // Another value may have moved here, for example when an item above was removed.
  const isCurrent = problem !== "" || isSame(valueIn(text), value);
  const input = (event) => {
    setText(event.currentTarget.value);
    try {
      change(valueIn(event.currentTarget.value));
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<textarea id=${id} class="code" rows="3" spellcheck=${false} value=${isCurrent ? text : written(value)} placeholder=${hint(schema)} aria-describedby=${described} onInput=${input}></textarea>
    ${schema?.additionalProperties?.type && html`<small class="help">${hint(schema)}</small>`}
    ${problem && html`<small class="problem" role="alert">${problem}</small>`}`;
}

/**
 * A form for an object, which can also be edited as JSON text.
 *
 * @param text the JSON text of the object; the only truth.
 * @param change gets the new text.
 */
export function ObjectForm({ schema, text, change, problems }) {
  const [raw, setRaw] = useState(kindOf(resolve(schema, schema)) !== "object");
  let value = null;
  let problem = "";
  try {
    value = parse(text);
  } catch (error) {
    problem = error.message;
  }
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  const resolved = resolve(schema, schema);
  const fitsForm = isObject && isDrawable(schema, schema, value);
  return html`<div class="object-form">
    <div class="row end">
      ${isObject && !fitsForm && html`<span class="quiet-text">The form would have too many fields.</span>`}
      <button type="button" class="quiet" disabled=${!fitsForm && !raw} onClick=${() => setRaw(!raw)}>${raw ? "Show the form" : "Edit as JSON"}</button>
    </div>
    ${raw || !fitsForm
      ? html`<textarea class="code" rows="8" spellcheck=${false} aria-label="arguments as JSON" value=${text}
            onInput=${(event) => change(event.currentTarget.value)}></textarea>
          ${problem && html`<small class="problem" role="alert">${problem}</small>`}`
      : html`<${Fields} schema=${resolved} root=${schema} value=${value} problems=${problems}
            change=${(next) => change(stringify(next, "  "))} />
          ${fieldsOf(resolved).length === 0 && html`<p class="quiet-text">It takes no arguments.</p>`}`}
  </div>`;
}
