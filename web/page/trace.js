// web/page/trace.js: what one number is made of: the products and sums of its operation, the numbers that enter, and
// how much each of them moves it.

/**
 * What a number is made of.
 * @typedef {{step: string, sentence: number, head: number, row: number, column: number}} Place
 * @typedef {{place: Place, value: number}} Factor
 * @typedef {{factors: Factor[], value: number, text?: string}} Term
 * @typedef {{formula: string, terms: Term[], softmax?: object, sum: number, after: {text: string, value: number}[],
 *            value: number, partials: {place: Place, by: number}[], reason?: string, off?: string}} Trace
 */

const sum = list => list.reduce((total, value) => total + value, 0);

class Tracer {
  constructor(explanation, place) {
    Object.assign(this, {explanation, place});
    this.step = explanation.step(place.step);
    this.inputs = this.step.inputs || [];
    this.operand = this.step.operand;
    this.terms = [];
    this.after = [];
    this.partials = [];
  }

  matrix(index, head = this.place.head) {
    const step = this.explanation.step(this.inputs[index]);
    return this.explanation.matrix(step, this.place.sentence, head);
  }

  at(index, row, column, head = this.place.head) {
    return this.of(this.inputs[index], row, column, head);
  }

  /** The number of a step of that name. */
  of(name, row, column, head = this.place.head) {
    const step = this.explanation.step(name);
    const place = {step: step.name, sentence: Math.min(this.place.sentence, step.batch - 1),
                   head: Math.min(head, step.heads - 1), row, column};
    return {place, value: this.explanation.matrix(step, place.sentence, place.head)[row]?.[column] ?? null};
  }

  /** The scores of a row, without those of keys that are off. */
  scores(row) {
    const {off} = this.explanation;
    return this.matrix(0)[row].map((score, key) => off?.keys.includes(key) ? null : score);
  }

  /** A product of numbers; masked factors take no part. */
  product(...factors) {
    if (factors.some(factor => factor.value === null)) return;
    const value = factors.reduce((all, factor) => all * factor.value, 1);
    this.terms.push({factors, value});
    factors.forEach((factor, at) => {
      this.partials.push({place: factor.place, by: factors.reduce((all, f, n) => n === at ? all : all * f.value, 1)});
    });
  }

  /** The sum of the products, times `scale`. */
  total(formula, {scale = 1, after = null} = {}) {
    const total = sum(this.terms.map(term => term.value));
    if (after) this.after.push({text: after, value: total * scale});
    for (const partial of this.partials) partial.by *= scale;
    return this.result(formula, total, total * scale);
  }

  /** One number through a function of slope `slope`. */
  single(factor, formula, value, slope, after) {
    if (factor.value === null) return this.nothing(formula);
    this.terms.push({factors: [factor], value: factor.value});
    this.partials.push({place: factor.place, by: slope});
    if (after) this.after.push({text: after, value});
    return this.result(formula, factor.value, value);
  }

  result(formula, total, value) {
    return {formula, terms: this.terms, sum: total, after: this.after, value, partials: this.partials};
  }

  nothing(formula) {
    return {formula, terms: [], sum: null, after: [], value: null, partials: []};
  }
}

/** The exponentials of a row of scores and of its sink, if it has one, and their sum. Masked scores are null. */
export function exponentials(scores, sink) {
  const largest = Math.max(...scores.filter(s => s !== null), sink ?? -Infinity);
  const exp = scores.map(s => s === null ? 0 : Math.exp(s - largest));
  const sinkExp = sink === undefined ? 0 : Math.exp(sink - largest);
  return {largest, exp, sinkExp, total: sum(exp) + sinkExp};
}

function softmax(t, i, j) {
  const scores = t.scores(i), {largest, exp, sinkExp, total} = exponentials(scores, t.operand);
  const formula = t.operand === undefined ? 'e^s / Σ e^s' : 'e^s / (e^sink + Σ e^s)';
  if (scores[j] === null) return t.nothing(formula);
  const share = exp.map(e => e / total);
  scores.forEach((s, m) => {
    if (s !== null) t.partials.push({place: t.at(0, i, m).place, by: share[j] * ((m === j ? 1 : 0) - share[m])});
  });
  const isOff = m => Boolean(t.explanation.off?.weights.includes(`${i}.${m}`));
  const entries = scores.map((s, m) => ({
    factor: {...t.at(0, i, m), value: s}, minus: s === null ? null : s - largest, exp: exp[m],
    share: s === null ? null : isOff(m) ? 0 : share[m], chosen: m === j}));
  const left = share.reduce((rest, each, m) => isOff(m) ? rest - each : rest, 1);  // what the row adds up to
  return {...t.result(formula, total, share[j]), softmax: {largest, entries, sink: t.operand, sinkExp, total, left}};
}

function additive(t, i, j) {
  const q = t.matrix(0)[i], k = t.matrix(1)[j], sq = t.matrix(2), sk = t.matrix(3);
  sq.forEach((row, n) => {
    const inner = sum(row.map((s, d) => s * q[d])) + sum(sk[n].map((s, d) => s * k[d])), w = t.at(4, 0, n);
    const tanh = Math.tanh(inner), slope = w.value * (1 - tanh * tanh);
    t.terms.push({factors: [w], value: w.value * tanh, text: `tanh(${inner.toFixed(4)})`});
    t.partials.push({place: w.place, by: tanh});
    q.forEach((_, d) => t.partials.push({place: t.at(0, i, d).place, by: slope * row[d]}));
    k.forEach((_, d) => t.partials.push({place: t.at(1, j, d).place, by: slope * sk[n][d]}));
    row.forEach((_, d) => t.partials.push({place: t.at(2, n, d).place, by: slope * q[d]}));
    sk[n].forEach((_, d) => t.partials.push({place: t.at(3, n, d).place, by: slope * k[d]}));
  });
  return t.total('Σ w tanh(S_q q + S_k k)');
}

function rotate(t, i, d) {
  const width = t.matrix(0)[i].length, even = d % 2 === 0, first = even ? d : d - 1;  // pairs (0, 1), (2, 3), ...
  const angle = i / 10000 ** (first / width), cos = Math.cos(angle), sin = Math.sin(angle);
  const [a, b] = [t.at(0, i, first), t.at(0, i, first + 1)];
  const [ca, cb] = even ? [cos, -sin] : [sin, cos];
  for (const [factor, by, name] of [[a, ca, even ? 'cos' : 'sin'], [b, cb, even ? '−sin' : 'cos']]) {
    t.terms.push({factors: [factor], value: factor.value * by, text: `${name}(${angle.toFixed(4)})`});
    t.partials.push({place: factor.place, by});
  }
  return t.total(even ? 'a cos θ − b sin θ' : 'a sin θ + b cos θ');
}

function softmaxBackward(t, i, j) {
  const w = t.at(0, i, j), dp = t.at(1, i, j);
  if (w.value === null) return t.nothing('w (dP − Σ w dP)');
  const row = t.matrix(1)[i];
  t.matrix(0)[i].forEach((_, m) => t.product(t.at(0, i, m), t.at(1, i, m)));
  const total = sum(t.terms.map(term => term.value));
  t.partials = [{place: w.place, by: dp.value - total}, {place: dp.place, by: w.value}];
  t.after = [{text: 'dP − Σ', value: row[j] - total}, {text: `× w ${w.value.toFixed(4)}`,
      value: w.value * (row[j] - total)}];
  return t.result('w (dP − Σ w dP)', total, w.value * (row[j] - total));
}

/** Σ over the other side of dS and what additive scores make of it. */
function additiveBackward(t, row, d, ofKeys) {
  const dS = t.matrix(0), q = t.matrix(1), k = t.matrix(2), sq = t.matrix(3), sk = t.matrix(4), w = t.matrix(5)[0];
  const others = ofKeys ? q.length : k.length;
  for (let other = 0; other < others; ++other) {
    const [i, j] = ofKeys ? [other, row] : [row, other], factor = t.at(0, i, j);
    if (factor.value === null) continue;
    const slope = sum(sq.map((s, n) => {
      const tanh = Math.tanh(sum(s.map((x, e) => x * q[i][e])) + sum(sk[n].map((x, e) => x * k[j][e])));
      return w[n] * (1 - tanh * tanh) * (ofKeys ? sk : sq)[n][d];
    }));
    t.terms.push({factors: [factor], value: dS[i][j] * slope, text: `× ${slope.toFixed(4)}`});
    t.partials.push({place: factor.place, by: slope});
  }
  return t.total('Σ dS Σ w (1 − tanh²) S');
}

/** One query worked out: a row is a key, the last row of `query_values` the sum over the keys. */
function rowOf(t, j, column) {
  const query = t.explanation.query();
  if (t.step.name === 'query_values') {
    const keys = t.matrix(1).length;
    for (const key of j < keys ? [j] : Array.from({length: keys}, (_, n) => n)) {
      if (column === 0) t.product(t.at(0, query, key));
      else t.product(t.at(0, query, key), t.at(1, key, column - 1));
    }
    return t.total(column === 0 ? 'w' : j < keys ? 'w v' : 'Σ w v');
  }
  const scores = t.explanation.step(t.inputs[0]);
  if (scores.operation !== 'dot' || column >= t.explanation.step(scores.inputs[0]).shape.at(-1)) return null;
  t.product(t.of(scores.inputs[0], query, column), t.of(scores.inputs[1], j, column));
  return t.total('q k');
}

const over = x => x === undefined ? {} : {scale: 1 / x, after: `÷ ${+x.toFixed(4)}`};

/** Every operation of docs/explain_json.md whose numbers are sums of numbers of its inputs. */
const OPERATIONS = {
  add: (t, i, j) => (t.product(t.at(0, i, j)), t.product(t.at(1, i, j)), t.total('a + b')),
  project(t, i, j) {
    const shared = t.matrix(1).length;  // several heads share x
    for (let e = 0; e < shared; ++e) t.product(t.at(0, i, e), t.at(1, e, j));
    return t.total('Σ x W', over(t.operand));
  },
  project_backward(t, i, d) {
    t.matrix(0)[i].forEach((_, e) => t.product(t.at(0, i, e), t.at(1, t.place.head * t.operand + d, e)));
    return t.total('Σ a W');
  },
  rotate,
  dot(t, i, j) {
    t.matrix(0)[i].forEach((_, d) => t.product(t.at(0, i, d), t.at(1, j, d)));
    return t.total('Σ a b', over(t.operand));
  },
  bilinear(t, i, j) {
    const W = t.matrix(2);
    W.forEach((row, d) => row.forEach((_, e) => t.product(t.at(0, i, d), t.at(2, d, e), t.at(1, j, e))));
    return t.total('Σ Σ q W k', over(t.operand));
  },
  additive,
  divide: (t, i, j) => t.single(t.at(0, i, j), 'a / x', t.at(0, i, j).value / t.operand, 1 / t.operand,
                                `÷ ${+t.operand.toFixed(4)}`),
  softcap(t, i, j) {
    const a = t.at(0, i, j), x = t.operand, tanh = Math.tanh(a.value / x);
    return t.single(a, 'x tanh(a / x)', x * tanh, 1 - tanh * tanh, `${x} tanh(a / ${x})`);
  },
  mask: (t, i, j) => {
    const own = t.explanation.matrix(t.step, t.place.sentence, t.place.head)[i]?.[j];
    return own === null ? t.nothing('−∞') : t.single(t.at(0, i, j), 'a', t.at(0, i, j).value, 1);
  },
  softmax,
  sink_weight(t, i) {
    const scores = t.scores(i), formula = 'e^sink / (e^sink + Σ e^s)';
    if (scores.every(s => s === null)) return t.nothing(formula);
    const {exp, sinkExp, total} = exponentials(scores, t.operand), share = sinkExp / total;
    scores.forEach((s, m) => s === null || t.partials.push({place: t.at(0, i, m).place, by: -share * exp[m] / total}));
    return t.result(formula, total, share);
  },
  dropout(t, i, j) {
    const a = t.at(0, i, j), own = t.explanation.matrix(t.step, t.place.sentence, t.place.head)[i][j];
    const by = own === 0 ? 0 : 1 / (1 - t.operand);
    return t.single(a, 'a / (1 − p), 0', a.value * by, by, by ? `÷ ${+(1 - t.operand).toFixed(4)}` : '× 0');
  },
  matmul(t, i, d) {
    t.matrix(0)[i].forEach((_, j) => t.product(t.at(0, i, j), t.at(1, j, d)));
    return t.total('Σ w v', over(t.operand));
  },
  matmul_transposed(t, j, d) {
    t.matrix(0).forEach((_, i) => t.product(t.at(0, i, j), t.at(1, i, d)));
    return t.total('Σ a b', over(t.operand));
  },
  join_heads(t, i, d) {
    const width = t.matrix(0)[0].length, head = Math.floor(d / width);
    const from = t.at(0, i, d % width, head);
    return t.single(from, 'a', from.value, 1);
  },
  mean_heads(t, i, j) {
    const heads = t.explanation.step(t.inputs[0]).heads;
    for (let head = 0; head < heads; ++head) t.product(t.at(0, i, j, head));
    return t.total('Σ w / H', over(heads));
  },
  sum_rows(t, i, j) {
    t.matrix(0).forEach((_, row) => t.product(t.at(0, row, t.step.shape.at(-1) === 1 ? i : j)));
    return t.total('Σ w');
  },
  select: (t, i, j) => {
    const own = t.explanation.matrix(t.step, t.place.sentence, t.place.head)[i][j];
    return own === null ? t.nothing('a') : t.single(t.at(0, i, j), 'a', t.at(0, i, j).value, 1);
  },
  copy: (t, i, j) => t.single(t.at(0, i, j), 'a', t.at(0, i, j).value, 1),
  dropout_backward(t, i, j) {
    const own = t.explanation.matrix(t.step, t.place.sentence, t.place.head)[i][j], a = t.at(0, i, j);
    const by = t.at(1, i, j).value > 0 || own ? 1 / (1 - t.operand) : 0;  // a weight of 0 may be kept
    return t.single(a, 'a / (1 − p), 0', a.value * by, by, by ? `÷ ${+(1 - t.operand).toFixed(4)}` : '× 0');
  },
  softmax_backward: softmaxBackward,
  softcap_backward(t, i, j) {
    const a = t.at(0, i, j), slope = 1 - (t.at(1, i, j).value / t.operand) ** 2;
    return t.single(a, 'a (1 − (b / x)²)', a.value * slope, slope, `× ${slope.toFixed(4)}`);
  },
  bilinear_backward_q(t, i, d) {
    t.matrix(0)[i].forEach((_, j) => t.matrix(1)[j].forEach((_, e) =>
      t.product(t.at(0, i, j), t.at(2, d, e), t.at(1, j, e))));
    return t.total('Σ dS W k');
  },
  bilinear_backward_k(t, j, d) {
    t.matrix(0).forEach((_, i) => t.matrix(1)[i].forEach((_, e) =>
      t.product(t.at(0, i, j), t.at(2, e, d), t.at(1, i, e))));
    return t.total('Σ dS W q');
  },
  additive_backward_q: (t, i, d) => additiveBackward(t, i, d, false),
  additive_backward_k: (t, j, d) => additiveBackward(t, j, d, true),
  row_of: rowOf,
};

/**
 * What the number at `place` is made of; null where its operation is not a sum of single numbers.
 * @param {Explanation} explanation
 * @param {Place} place
 * @returns {Trace|null}
 */
export function trace(explanation, place) {
  const step = explanation.step(place.step), operation = OPERATIONS[step?.operation];
  if (!operation || (step.inputs || []).some(name => !explanation.step(name))) return null;
  const tracer = new Tracer(explanation, place), made = operation(tracer, place.row, place.column);
  const own = explanation.matrix(step, place.sentence, place.head)[place.row]?.[place.column];
  if (made && own === null) return tracer.nothing(made.formula);  // a masked pair has no number
  const part = made && partOff(explanation, place);
  if (!part) return made;
  made.after.push({text: '× 0', value: 0});
  return {...made, value: 0, off: part, partials: []};
}

/** What is off and sets the number at a place to 0, after its operation: 'weight', 'head' or null. */
function partOff(explanation, place) {
  const {off} = explanation, step = explanation.step(place.step);
  if (!off) return null;
  if (step.operation === 'softmax' && off.weights.includes(`${place.row}.${place.column}`)) return 'weight';
  return isContext(step) && off.heads.includes(place.head) ? 'head' : null;
}

/** Whether a step is what a head gives: the context, before the heads are joined. */
export const isContext = ({operation, name}) => operation === 'matmul' && name.startsWith('context');

/**
 * How much one number would move for a small change of each number it depends on, back to the embedding and the weight
 * matrices.
 * @returns {Map<string, number[][]>} by step: a matrix of derivatives for the sentence of `place`; steps with heads
 * have
 *          one for the head of `place`
 */
export function pulls(explanation, place) {
  const found = new Map();  // step -> head -> matrix
  const add = (at, value) => {
    const step = explanation.step(at.step), key = `${at.step}.${at.head}`;
    if (!found.has(key)) found.set(key, {at, step, matrix: explanation.matrix(step, at.sentence, at.head)
      .map(row => row.map(() => 0))});
    found.get(key).matrix[at.row][at.column] += value;
  };
  add(place, 1);
  const done = new Set();
  for (;;) {
    const open = [...found].filter(([key]) => !done.has(key));
    if (!open.length) break;
    const [key, {at, matrix}] = open.reduce((a, b) =>
      explanation.order.get(a[1].at.step) >= explanation.order.get(b[1].at.step) ? a : b);
    done.add(key);
    matrix.forEach((row, i) => row.forEach((by, j) => {
      if (by === 0) return;
      const made = trace(explanation, {...at, row: i, column: j});
      if (made) for (const partial of made.partials) add(partial.place, by * partial.by);
    }));
  }
  return new Map([...found].map(([, {at, matrix}]) => [`${at.step}.${at.head}`, matrix]));
}
