// web/tests/trace.js: node web/tests/trace.js BUILD: what the page says a number is made of, for every number of many
// explanations of the command.
import fs from 'node:fs';

import { Explanation } from '../page/explanation.js';
import { trace } from '../page/trace.js';
import { Native } from './native.js';

const native = new Native(process.argv[2]);
let passed = 0, failed = 0;
const met = new Map();  // operation: the largest batch, heads and dim that it was met with

/** Counts a check; says what is wrong. */
function check(right, what) {
  if (right) return ++passed;
  ++failed;
  console.log('FAILED: ' + what);
}

const largestOf = step => Math.max(0, ...[step.values].flat(Infinity).map(value => Math.abs(value ?? 0)));

/** Compares each number of a step with what its inputs make. The library rounds to f32 and scales before it adds, so
 * errors are relative to the largest number in use; those of a gradient to the largest `gradient` so far as well. */
function checkStep(explanation, step, gradient, what) {
  const wrong = [], inputs = (step.inputs ?? []).map(name => explanation.step(name)).filter(Boolean);
  const most = inputs.map(largestOf);
  const largest = Math.max(largestOf(step), ...most, ...most.map(each => each * gradient));
  let found = 0;
  for (let b = 0; b < step.batch; ++b)
    for (let h = 0; h < step.heads; ++h)
      explanation.matrix(step, b, h).forEach((row, i) => row.forEach((value, j) => {
        const made = trace(explanation, { step: step.name, sentence: b, head: h, row: i, column: j });
        if (!made) return;
        ++found;
        const size = made.terms.reduce((total, term) => total + Math.abs(term.value), 0);
        const right = made.value === null || value === null ? made.value === value || value === 0
          : Math.abs(made.value - value) <= 2 ** -20 * Math.max(size, largest);
        if (!right) wrong.push([b, h, i, j, value, made.value]);
      }));
  if (!found) return;
  const dims = inputs.map(input => input.shape.at(-1));
  const sizes = met.get(step.operation) ?? { batch: 0, heads: 0, dim: 0 };
  met.set(step.operation, { batch: Math.max(sizes.batch, explanation.batch), heads: Math.max(sizes.heads,
      explanation.heads), dim: Math.max(sizes.dim, step.shape.at(-1), ...dims) });
  check(!wrong.length, `${what}: ${step.name} (${step.operation}): [sentence, head, row, column, number, made] ` +
        JSON.stringify(wrong.slice(0, 3)));
}

const TEXTS = ['a b c d', 'a b', 'c d e'], AROUND = { softcap: 3, temperature: 2, sink: 1, bias: 'alibi' };
const MORE = [{}, { mask: 'causal(top_left)', ...AROUND, weights: 'head_average' },
  { dropout_p: 0.3, weights: 'column_sums', output_projection: true, to: 'b d f g h' },
  { learned_query: true, weights: 'top_k(2)' }, { query: 1, weights: 'rows(0, 1)' }];
for (const dk of [4, 8])
  for (const score of ['scaled_dot', 'dot', 'general', 'additive'])
    for (const positions of ['none', 'sinusoidal', 'rotary'])
      for (const text of [TEXTS[0], TEXTS])
        for (const { to, ...more } of MORE) {
          const options = { dk, score, positions, heads: 3, dim: 6, dv: 5, gradients: true, ...more };
          const { text: json, error } = native.explain({ text, to, options });
          const what = JSON.stringify({ text, to, options });
          if (error !== null) {
            check(false, `${what}: ${error}`);
            continue;
          }
          const explanation = new Explanation(json);
          let gradient = 0;
          for (const step of explanation.steps) {
            if (step.kind === 'words' || step.kind === 'checks') continue;
            checkStep(explanation, step, gradient, what);
            if (step.name.startsWith('d_')) gradient = Math.max(gradient, largestOf(step));
          }
        }

// Every operation of the table was met, with sizes that show which numbers it pairs.
const documented = fs.readFileSync(new URL('../../docs/explain_json.md', import.meta.url), 'utf8')
  .split('| operation | number |')[1].split('\n\n')[0].split('\n').filter(line => line.startsWith('| `'))
  .flatMap(line => line.split('|')[1].match(/\w+/g));
check(documented.length > 20, `docs/explain_json.md has ${documented.length} operations`);
for (const operation of documented) {
  const { batch, heads, dim } = met.get(operation) ?? {};
  check(batch >= 3 && heads >= 3 && dim >= 4, `${operation} was met with batch ${batch}, ${heads} heads, dim ${dim}`);
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
