// web/tests/engine.js: Node's tests of the engine, beside the command: node web/tests/engine.js BUILD WASM_BUILD.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { Engine } from '../engine.js';
import { Files } from '../engine/files.js';
import { Native, outcome } from './native.js';
import { Random, randomRequest } from './random_requests.js';

const [build, wasmBuild] = process.argv.slice(2);
const native = new Native(build);
const seed = Number(process.env.ATTN_TEST_SEED ?? Date.now() % 1e6);
const random_count = process.env.ATTN_TEST_FULL ? 2000 : 500;
let passed = 0, failed = 0;

/** Counts a check; says what is wrong. */
function check(right, what) {
  if (right) ++passed;
  else {
    ++failed;
    console.log('FAILED: ' + what);
  }
}

/** Where two texts begin to differ. */
function difference(a, b) {
  let at = 0;
  while (at < a.length && a[at] === b[at]) ++at;
  const around = (text) => JSON.stringify(text.slice(Math.max(at - 60, 0), at + 60));
  return `at ${at}: command ${around(a)}, engine ${around(b)}`;
}

/** The words of the texts as the command's dictionaries cut them: the page has those of the browser. */
function withCuts(request) {
  if (request.options?.tokens !== 'words') return request;
  const { text, to } = request, cut = {};
  const words = native.explain({ text, to, options: { tokens: 'words' } });
  if (words.error !== null) return request;
  const { steps } = JSON.parse(words.text);
  for (const [name, texts] of [['tokens', [request.text].flat()], ['tokens_to', request.to ? [request.to] : []]]) {
    const step = steps.find((one) => one.name === name);
    const lists = Array.isArray(step?.values[0]) ? step.values : [step?.values];
    const places = Array.isArray(step?.places?.[0]?.[0]) ? step.places : [step?.places];
    texts.forEach((text, i) => { cut[text] = lists[i].slice(0, places[i].length); });
  }
  return { ...request, cut };
}

async function same(engine, request, form = 'explain') {
  const said = native.explain(request, form === 'svg' ? ['--svg', '-'] : ['--json']);
  const made = await outcome(engine[form](withCuts(request)));
  const name = `${form} ${JSON.stringify(request)}`;
  if (said.error !== null) {
    // The command says what its options hold in its own words, and Chinese lines where Chinese is spoken.
    const own = said.error.startsWith('attn explain') || request.options?.language === 'zh';
    const equal = own ? made.error !== null : made.error === said.error;
    check(equal, `${name}: command "${said.error}", engine ${made.error ?? 'no error'}`);
  } else if (made.error !== null) check(false, `${name}: ${made.error}`);
  else check(made.text === said.text, `${name}: ${difference(said.text, made.text)}`);
}

const sentence = (count, words) => Array.from({ length: count }, (_, i) => 'w' + (i % words)).join(' ');
const table = [
  { text: 'Life is short, eat dessert first' },
  { text: 'Life is short', options: { mask: 'causal', query: 2 } },
  { text: 'Life is short', options: { gradients: true } },
  { text: 'Life is short', options: { bias: 'alibi', sink: 1, cache: 'int8', weights: 'top_k(2)' } },
  { text: 'to be or not to be', options: { heads: 2, positions: 'sinusoidal', dim: 4 } },
  { text: 'to be or not to be', options: { heads: 2, positions: 'rotary', dim: 4, dk: 4 } },
  { text: 'Life is short', to: 'eat dessert first' },
  { text: 'Life is short', to: 'eat dessert first', options: { mask: 'causal(top_left)', heads: 2, gradients: true } },
  { text: '我叫张三', options: { language: 'zh', tokens: 'characters' } },
  { text: '我叫张三，他是谁', options: { language: 'zh', tokens: 'words' } },
  { text: '東京都に住んでいる学生です', to: '我叫张三', options: { tokens: 'words' } },
  { text: ['我叫张三', '他是谁', '李四'], options: { language: 'zh', packed: true } },
  { text: ['one'], options: {} },
  { text: 'Life is short', options: { score: 'additive', gradients: true, query: 1 } },
  { text: 'Life is short', options: { score: 'general', gradients: true, query: -1 } },
  { text: 'a b c d e f g h', options: { mask: 'window(2, 0)', softcap: 5, temperature: 0.7, query: 5 } },
  { text: 'a b c d e f g h', options: { dropout_p: 0.3, seed: 7 } },
  { text: 'a b c d e f g h', options: { score_mod: 's - 0.5 * (i - j)', gradients: true, bias: 'relative' } },
  { text: 'a b c', options: { seed: 9007199254740991 } },
  { text: 'a b c', options: { output_projection: true, heads: 2, only: ['weights', 'context'] } },
  { text: 'a b c', options: { learned_query: true, vocabulary: 100 } },
  { text: sentence(32, 20), options: { dim: 32, dk: 16, dv: 16, heads: 4 } },
  { text: sentence(128, 50), options: { dim: 64, dk: 16, dv: 16, heads: 4, mask: 'causal', gradients: true } },
  // what the library refuses
  { text: '' }, { text: 'a b', options: { query: 7 } }, { text: 'a b', options: { heads: 99 } },
  { text: 'a b', options: { temperature: 0 } }, { text: 'a b', options: { mask: 'windo(2)' } },
  { text: 'a b', options: { score_mod: 's + (' } }, { text: sentence(2049, 2049) },
];

async function parity(engine) {
  for (const request of table) await same(engine, request);
  for (const request of table.slice(0, 12)) await same(engine, request, 'svg');
  console.log(`random requests: seed ${seed} (ATTN_TEST_SEED repeats it)`);
  const random = new Random(seed);
  for (let i = 0; i < random_count; ++i) await same(engine, randomRequest(random));
}

async function matrices(engine) {
  const shape = [3, 2], data = [0.5, -1, 0.25, 2, 1, 0];
  const request = { text: 'Life is short', matrices: {
    w_query: { shape, data }, w_key: { shape, data }, w_value: { shape: [3, 2], data: [1, 0, 0, 1, 1, 1] } } };
  const made = JSON.parse(await engine.explain(request));
  const given = made.parameters.find((one) => one.name === 'w_query').values.flat(3);
  check(JSON.stringify(given) === JSON.stringify(data), `matrices: w_query is ${given}`);
  const wrong = await outcome(engine.explain({ ...request, matrices: { w_query: { shape, data } } }));
  check(/w_key/.test(wrong.error ?? ''), `one matrix alone: ${wrong.error}`);
}

async function mistakes(engine) {
  for (const [request, words] of [
    [{}, /text/], [{ text: 'a', options: { head: 1 } }, /there is no option "head"/],
    [{ text: 'a', options: { heads: 'two' } }, /heads is "two"; a whole number is needed/], [{ text: 7 }, /./]])
    check(words.test((await outcome(engine.explain(request))).error ?? ''), `mistake ${JSON.stringify(request)}`);
  check((await outcome(engine.generate({ prompt: 'a' }))).error === 'no model is loaded', 'generate without a model');
  const engines = held.length;
  for (const call of [() => engine.explain({ text: 'a', options: { seed: 1n } }), () => engine.generate({ seed: 1n }),
    () => engine.load(null)]) {
    const { error } = await outcome(call());
    check(!/the engine failed/.test(error ?? 'the engine failed'), `what is no request: ${error}`);
  }
  check(held.length === engines, 'what is no request starts no engine');
}

/** A trap in the middle of a call: one error in words, and an engine that works. Calls meanwhile wait for it. */
async function traps(bytes) {
  const instantiate = WebAssembly.instantiate;
  const unreachable = new WebAssembly.RuntimeError('unreachable');
  let trap = unreachable, instances = 0;  // the next call of explain throws it; that instance is then broken
  WebAssembly.instantiate = async (...given) => {
    const instance = await instantiate.apply(WebAssembly, given);
    let broken = false;
    ++instances;
    const explain = () => {
      if (broken) throw new WebAssembly.RuntimeError('broken');
      broken = trap !== null;
      const thrown = trap;
      trap = null;
      if (broken) throw thrown;
      return instance.exports.engine_explain();
    };
    return { exports: { ...instance.exports, engine_explain: explain } };
  };
  const request = { text: 'Life is short' }, right = native.explain(request).text;
  const engine = await Engine.open(bytes);
  const calls = await Promise.all([1, 2, 3].map(() => outcome(engine.explain(request))));
  check(calls[0].error === 'the engine failed (unreachable) and was started anew', `trap: ${calls[0].error}`);
  for (const { text, error } of calls.slice(1)) check(text === right, `a call at the time of a trap: ${error}`);
  check(instances === 2, `instances with one trap: ${instances}`);
  trap = unreachable;
  const trapped = outcome(engine.explain(request));
  await Promise.resolve();  // the trap has happened, the engine is starting
  const [first, second] = [await outcome(engine.explain(request)), await trapped];
  check(first.text === right && second.error !== null, `a call during a start: ${first.error}, ${second.error}`);
  check(instances === 3, `instances with two traps: ${instances}`);
  trap = new WebAssembly.Exception(new WebAssembly.Tag({ parameters: [] }), []);
  const { error } = await outcome(engine.explain(request));
  check(error === 'the engine failed (no memory left) and was started anew', `an exception of the engine: ${error}`);
  check((await engine.explain(request)) === right && instances === 4, `after an exception: ${instances} instances`);
  WebAssembly.instantiate = async () => { throw new RangeError('no memory for an engine'); };
  trap = unreachable;
  const failed = await outcome(engine.explain(request));
  check(failed.error === 'no memory for an engine', `a start that fails: ${failed.error}`);
  WebAssembly.instantiate = instantiate;
  check((await engine.explain(request)) === right, 'after a start that failed');
  const deep = await outcome(engine.explain({ text: 'a', options: { mask: '('.repeat(1e6) + 'causal' } }));
  check(deep.error !== null, 'a mask of a million brackets');
  check((await engine.explain(request)) === right, 'after a mask of a million brackets');
}

/** A program of web/tests/programs prints the same as the one that g++ makes. */
async function program(name) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'attn-'));
  const source = new URL(`programs/${name}.cc`, import.meta.url).pathname;
  const options = ['-std=c++20', '-O1', '-ffp-contract=off', source, '-o', `${folder}/${name}`];
  const compiled = spawnSync('g++', options, { encoding: 'utf8' });
  const right = compiled.status === 0 ? spawnSync(`${folder}/${name}`, { encoding: 'utf8' }).stdout : compiled.stderr;
  fs.rmSync(folder, { recursive: true });
  let instance, said = '';
  const files = new Files(() => instance.exports.memory), log = console.log;
  console.log = (text) => { said += text + '\n'; };
  try {
    const module = await WebAssembly.compile(fs.readFileSync(`${wasmBuild}/test_${name}.wasm`));
    instance = await WebAssembly.instantiate(module, files.imports(module));
    instance.exports._start();
  } catch (error) {
    if (error.message !== 'exit 0') said += error.message + '\n';
  } finally {
    console.log = log;
  }
  const lines = right.split('\n'), got = said.split('\n');
  lines.forEach((line, i) => check(line === got[i], `${name}, line ${i + 1}: g++ "${line}", WebAssembly "${got[i]}"`));
  check(lines.length > 5 && lines.length === got.length, `${name}: ${lines.length} lines, WebAssembly ${got.length}`);
}

async function digest(engine) {
  const said = native.run(['verify', '--quick']).text.match(/digest ([0-9a-f]+)/)?.[1];
  const made = await outcome(engine.verify(true));
  check(made.text === said, `verify --quick: command ${said}, engine ${made.error ?? made.text}`);
  console.log(`digest of verify --quick: ${made.text}`);
}

/** The same model as a GGUF file: a head and a text are the command's, with the file's tensors as they are stored. */
async function ggufModel(engine, folder, at) {
  for (const type of ['F32', 'Q8_0']) {
    const file = path.join(folder, `${type}.gguf`);
    check(native.run(['convert', folder, file, '--type', type]).error === null, `attn convert to ${type}`);
    const facts = await engine.load({ [`${type}.gguf`]: new Uint8Array(fs.readFileSync(file)) });
    check(facts.layers === 4 && facts.heads === 4 && facts.vocabulary === 300, `${type}: ${JSON.stringify(facts)}`);
    check(held.at(-1).files.size === 0, `files kept after a load of ${type}: ${held.at(-1).files.size}`);
    const json = native.run(['explain', '--model', file, at.text, '--layer', '2', '--head', '1', '--gradients',
      '--json', '--lang', 'en']).text;
    check((await engine.explainModel(at)) === json, `explainModel of ${type}`);
    const made = await engine.generate({ prompt: 'This', tokens: 40, temperature: 0.8, seed: 3 });
    const said = JSON.parse(native.run(['generate', file, '--prompt', 'This', '--tokens', '40', '--temperature', '0.8',
      '--seed', '3', '--json']).text).texts[0].text;
    check(made === said, `generate of ${type}: command ${JSON.stringify(said)}, engine ${JSON.stringify(made)}`);
  }
  const whole = new Uint8Array(fs.readFileSync(path.join(folder, 'F32.gguf')));
  const beyond = { length: 2 ** 32 + whole.length, subarray: (from, to) => whole.subarray(from, to) };
  const large = await outcome(engine.load({ 'large.gguf': beyond }));  // its size in 32 bits is that of the whole file
  check(/memory/.test(large.error ?? ''), `a GGUF file of more than 4 GiB: ${large.error}`);
  for (const size of [0, 3, 40, 5000, whole.length - 1]) {
    const cut = await outcome(engine.load({ 'cut.gguf': whole.subarray(0, size) }));
    check(/model\/cut\.gguf/.test(cut.error ?? ''), `a GGUF file cut to ${size} bytes: ${cut.error}`);
  }
}

/** A model that the command has trained: its facts, a head, a text, and a text that the page ends. */
async function model(engine) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'attn-'));
  const text = path.join(folder, 'text.txt'), out = path.join(folder, 'model');
  fs.writeFileSync(text, fs.readFileSync(new URL('../../LICENSE', import.meta.url)));
  const train = native.run(['train', text, '--out', out, '--size', 'nano', '--tokens', 'bpe', '--vocab', '300',
    '--steps', '3']);
  check(train.error === null, `attn train: ${train.error}`);
  const files = Object.fromEntries(fs.readdirSync(out).filter((name) => /\.(json|safetensors)$/.test(name))
    .map((name) => [name, new Uint8Array(fs.readFileSync(path.join(out, name)))]));
  const facts = await engine.load(files);
  check(held.at(-1).files.size === 0, `files kept after a load: ${held.at(-1).files.size}`);
  check(facts.layers === 4 && facts.heads === 4 && facts.vocabulary === 300, `load: ${JSON.stringify(facts)}`);
  const at = { text: 'Permission is granted', layer: 2, head: 1, gradients: true };
  const json = native.run(['explain', '--model', out, at.text, '--layer', '2', '--head', '1', '--gradients', '--json',
    '--lang', 'en']).text;
  check((await engine.explainModel(at)) === json, 'explainModel');
  const started = performance.now();
  let pieces = '';
  const made = await engine.generate({ prompt: 'This', tokens: 60, temperature: 0.8, seed: 3 }, (piece) => {
    pieces += piece;
  });
  console.log(`nano model: ${(60000 / (performance.now() - started)).toFixed(0)} tokens a second`);
  const said = JSON.parse(native.run(['generate', out, '--prompt', 'This', '--tokens', '60', '--temperature', '0.8',
    '--seed', '3', '--json']).text).texts[0].text;
  check(made === said && pieces === said, `generate: command ${JSON.stringify(said)}, engine ${JSON.stringify(made)}`);
  let count = 0;
  await engine.generate({ prompt: 'This', tokens: 60, seed: 3 }, () => ++count < 3);
  check(count === 3, `a text that is ended after 3 pieces had ${count}`);
  await ggufModel(engine, out, at);
  const missing = await outcome(engine.load({ 'config.json': files['config.json'] }));
  check(/model\/model\.safetensors: No such file/i.test(missing.error ?? ''), `load without weights: ${missing.error}`);
  check(held.at(-1).files.size === 0, `files kept after a load that fails: ${held.at(-1).files.size}`);
  const again = await outcome(engine.generate({ prompt: 'This' }));
  check(again.error === 'no model is loaded', `generate after a load that fails: ${again.error}`);
  fs.rmSync(folder, { recursive: true });
}

const held = [];  // the file systems of the engines
const { imports } = Files.prototype;
Files.prototype.imports = function importsOf(module) {
  held.push(this);
  return imports.call(this, module);
};
const bytes = fs.readFileSync(`${wasmBuild}/node_engine.wasm`);
const engine = await Engine.open(bytes);
check(native.run(['--version']).text.includes(engine.version), `version ${engine.version}`);
await program('exceptions');
await program('fmaf');
await program('numbers');
await matrices(engine);
await mistakes(engine);
await traps(bytes);
await parity(engine);
await model(await Engine.open(bytes));
await digest(engine);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
