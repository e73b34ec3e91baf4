// Compiles schemas of results as the TypeScript SDKs do, and applies each to some values. Prints the failures as JSON, and
// which keywords their validators know.
// Usage: node compiling_typescript.mjs FOLDER FILE, where FOLDER has both SDKs in its node_modules, and FILE has one schema a
// line. Each schema gets a validator of its own, and one that has compiled all earlier ones, as a client's has.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

const [folder, file] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const kinds = {
    1: require('@modelcontextprotocol/sdk/validation/ajv').AjvJsonSchemaValidator,
    2: require('@modelcontextprotocol/client/validators/ajv').AjvJsonSchemaValidator
};
console.warn = () => {}; // it names unknown formats

const failures = [];
const keywords = new Set();
const schemas = readFileSync(file, 'utf8').split('\n').filter(Boolean);
for (const [major, Validator] of Object.entries(kinds)) {
    const shared = new Validator();
    shared.getValidator({});
    for (const name of Object.keys(shared._ajv.RULES.all)) keywords.add(name);
    for (const line of schemas) {
        try {
            for (const validator of [new Validator(), shared]) {
                const validate = validator.getValidator(JSON.parse(line));
                for (const value of [{}, { x: 'a', a: { b: ['a'] } }, { x: { x: [1] } }]) validate(value);
            }
        } catch (error) {
            failures.push([major, line, String(error).slice(0, 200)]);
        }
    }
}
console.log(JSON.stringify({ failures, count: schemas.length, keywords: [...keywords] }));
