// web/tests/speed.js: measures the engine in Node: `node web/tests/speed.js [BUILD [WASM_BUILD]]`. A table, not a test:
// tokens a second of a nano model beside the command's, what a step of a slider takes, and gradients. web/README.md
// says what measures the page in a browser.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { Engine } from '../engine.js';

const [, , build = 'build/release', wasm = 'build/wasm'] = process.argv;
const attn = (...words) => {
  const done = spawnSync(`${build}/attn`, words, { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(done.stderr);
  return done.stdout;
};

/** The best and the middle of several times of work, in milliseconds. */
async function times(count, work) {
  const all = [];
  for (let n = 0; n < count; ++n) {
    const started = performance.now();
    await work();
    all.push(performance.now() - started);
  }
  all.sort((a, b) => a - b);
  return [all[0], all[all.length >> 1]];
}

const line = (what, ...figures) => console.log(what.padEnd(46), ...figures.map((each) => each.padStart(12)));
const rate = (tokens, ms) => `${(1000 * tokens / ms).toFixed(0)} / s`;

const engine = await Engine.open(fs.readFileSync(`${wasm}/engine.wasm`));
const text = Array.from({ length: 32 }, (_, n) => `w${n}`).join(' ');
line('', 'best', 'median');
for (const [what, words, options] of [
  ['explain, 32 tokens, 4 heads', text, { heads: 4 }],
  ['explain, 128 tokens with gradients', Array.from({ length: 128 }, (_, n) => `w${n}`).join(' '), { gradients: true }],
]) {
  let step = 0;
  const took = await times(9, () => engine.explain({ text: words,
    options: { ...options, temperature: 1 + ++step / 10 } }));
  line(what, ...took.map((ms) => `${ms.toFixed(1)} ms`));
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'attn-')), out = path.join(folder, 'model');
try {
  fs.copyFileSync(new URL('../../LICENSE', import.meta.url), path.join(folder, 'text.txt'));
  attn('train', path.join(folder, 'text.txt'), '--out', out, '--size', 'nano', '--tokens', 'bpe', '--vocab', '300',
    '--steps', '3');
  const files = Object.fromEntries(['config.json', 'model.safetensors', 'tokenizer.json'].map((name) =>
    [name, new Uint8Array(fs.readFileSync(path.join(out, name)))]));
  await engine.load(files);
  const tokens = 120;
  const took = await times(5, () => engine.generate({ prompt: 'This', tokens, temperature: 0.8, seed: 3 }));
  line(`generate ${tokens} tokens, nano`, ...took.map((ms) => rate(tokens, ms)));
  const start = await times(3, () => attn('generate', out, '--prompt', 'This', '--tokens', '1'));
  const native = await times(3, () => attn('generate', out, '--prompt', 'This', '--tokens', String(tokens + 1)));
  line('the same by the command', ...native.map((ms, n) => rate(tokens, Math.max(ms - start[n], 0.1))));
} finally {
  fs.rmSync(folder, { recursive: true });
}
