// web/page/what_if.js: what the numbers would be with a key, a weight or a head switched off, and what chosen tokens
// get: computed here from the engine's numbers, in double precision.
import {exponentials, isContext} from './trace.js';

/** Whether anything is switched off. */
export const isOff = off => off.keys.length + off.weights.length + off.heads.length > 0;

const sum = list => list.reduce((total, value) => total + value, 0);

/** Recomputes one step from numbers that changed; null where the page cannot. */
const AGAIN = {
  dropout: (step, [weights], original) => weights.map((row, i) => row.map((w, j) =>
    w === null ? null : original[i][j] === 0 ? 0 : w / (1 - step.operand))),
  matmul: (step, [a, b]) => a.map(row => b[0].map((_, d) => {
    let total = 0;
    row.forEach((w, j) => { if (w) total += w * b[j][d]; });
    return step.operand === undefined ? total : total / step.operand;
  })),
  project: (step, [a, b]) => a.map(row => b[0].map((_, d) => sum(row.map((x, e) => x * b[e][d])))),
  add: (step, [a, b]) => a.map((row, i) => row.map((x, d) => x + b[i][d])),
  copy: (step, [a]) => a,
  select: (step, [a], original) => a.map((row, i) => row.map((x, j) => original[i][j] === null ? null : x)),
  sum_rows: (step, [a], original) => {
    const sums = a[0].map((_, j) => sum(a.map(row => row[j] ?? 0)));
    return original.length === 1 ? [sums] : sums.map(total => [total]);
  },
};
const BACKWARD = /^d_|^query_|_backward/;

/**
 * The weights of a row, and of its sink, over the keys that are left: softmax of their scores. A row that loses no key
 * keeps the engine's numbers.
 */
function without(weights, ofSink, scores, sink, off) {
  if (!off.keys.some(j => weights[j] !== null && weights[j] !== undefined)) return {weights, ofSink};
  const left = scores.map((s, j) => off.keys.includes(j) ? null : s), {exp, sinkExp, total} = exponentials(left, sink);
  return {weights: left.map((s, j) => s === null ? null : exp[j] / total),
          ofSink: left.every(s => s === null) ? 0 : sinkExp / total};
}

/** Steps that parts off change in a way the page does not follow: a call of its own, another choice of keys. */
const isNotFollowed = (step, off) => step.operation === 'attention' ||
  step.name === 'top_k' && off.keys.length + off.weights.length > 0;

/**
 * The steps that change when keys, weights or heads are off.
 * @param {Explanation} explanation
 * @param {{keys: number[], weights: string[], heads: number[]}} off
 * @returns {{matrices: Map<string, (number|null)[][]>, stale: Set<string>}} by `step.sentence.head`; stale: steps after
 *          a change that the page does not compute again
 */
export function switchOff(explanation, off) {
  const matrices = new Map(), changed = new Set(), stale = new Set();
  if (!isOff(off)) return {matrices, stale};
  const read = (name, sentence, head) => {
    const step = explanation.step(name);
    const key = `${name}.${Math.min(sentence, step.batch - 1)}.${Math.min(head, step.heads - 1)}`;
    return matrices.get(key) || explanation.matrix(step, sentence, head);
  };
  const softmax = explanation.steps.find(step => step.operation === 'softmax');
  for (const step of explanation.steps) {
    const inputs = step.inputs || [], isWeights = step.operation === 'softmax';
    const isSink = step.operation === 'sink_weight', isLost = isNotFollowed(step, off);
    if (!isWeights && !isSink && !isLost && !inputs.some(name => changed.has(name) || stale.has(name))) continue;
    const again = isWeights || isSink || step.operation === 'join_heads' || step.operation === 'mean_heads' ||
        AGAIN[step.operation];
    if (isLost || !again || BACKWARD.test(step.name) || inputs.some(name => stale.has(name))) {
      stale.add(step.name);
      continue;
    }
    changed.add(step.name);
    for (let b = 0; b < step.batch; ++b) {
      for (let h = 0; h < step.heads; ++h) {
        const original = explanation.matrix(step, b, h);
        let made;
        if (isWeights || isSink) {
          const weights = explanation.matrix(softmax, b, h), scores = explanation.matrix(
              explanation.step(softmax.inputs[0]), b, h);
          made = weights.map((row, i) => {
            const left = without(row, isSink ? original[i][0] : null, scores[i], softmax.operand, off);
            return isSink ? [left.ofSink] : left.weights.map((w, j) => w !== null && off.weights.includes(`${i}.${j}`)
              ? 0 : w);
          });
        } else if (step.operation === 'join_heads' || step.operation === 'mean_heads') {
          const heads = Array.from({length: explanation.step(inputs[0]).heads}, (_, n) => read(inputs[0], b, n));
          made = step.operation === 'join_heads' ? heads[0].map((_, i) => heads.flatMap(matrix => matrix[i]))
            : heads[0].map((row, i) => row.map((_, j) => sum(heads.map(matrix => matrix[i][j] ?? 0)) / heads.length));
        } else made = AGAIN[step.operation](step, inputs.map(name => read(name, b, h)), original);
        if (isContext(step) && off.heads.includes(h)) made = made.map(row => row.map(() => 0));
        matrices.set(`${step.name}.${b}.${h}`, made);
      }
    }
  }
  return {matrices, stale};
}

/** The explanation with the numbers that parts off leave: what `trace` takes apart then. */
export function withOff(explanation, off, matrices) {
  const matrix = (step, sentence, head) =>
    matrices.get(`${step.name}.${Math.min(sentence, step.batch - 1)}.${Math.min(head, step.heads - 1)}`) ||
    explanation.matrix(step, sentence, head);
  return Object.assign(Object.create(explanation), {off, matrix});
}

/**
 * What switching off does to the rows of the weights: whether a key is off, whether a row is left without a key, and of
 * each row with a weight off what it adds up to now, with its sink.
 */
export function rowsOff(weights, sink, off) {
  const changed = new Set(off.weights.map(name => +name.split('.')[0]));
  return {
    keys: off.keys.length > 0, empty: off.keys.length > 0 && weights.some(row => row.every(w => w === null)),
    sums: weights.map((row, at) => ({at, sum: sum(row.map(w => w ?? 0)) + (sink ? sink[at][0] : 0)}))
      .filter(row => changed.has(row.at) && Math.abs(row.sum - 1) > 1e-6),
  };
}

/** Of each row of weights: the sum over the chosen keys and the entropy of the row in bits. */
export function sumAndEntropy(weights, chosen) {
  return weights.map(row => [
    sum(chosen.map(j => row[j] ?? 0)),
    -sum(row.map(w => w > 0 ? w * Math.log2(w) : 0)) || 0,
  ]);
}
