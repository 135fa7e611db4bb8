// web/page/explanation.js: reads the JSON of an explanation; gives matrices, labels and masked pairs by sentence and
// head.

const SPECIAL = {nan: NaN, inf: Infinity, '-inf': -Infinity};

const DIMS = {words: 1, ids: 1, checks: 1};

/** Whether a step has a dim for the sentences though there is one: a batch of one text. */
const isListOfOne = step => step.kind && step.kind !== 'words' && step.batch === 1 &&
  step.shape.length > (DIMS[step.kind] ?? 2) + (step.heads > 1);

function numbers(value) {
  if (!Array.isArray(value)) return typeof value === 'string' ? SPECIAL[value] : value;
  if (value.length && (Array.isArray(value[0]) || value.some(each => typeof each === 'string')))
    return value.map(numbers);
  return value;
}

/** An explanation as the page uses it. */
export class Explanation {
  /** @param {string} text the JSON of `attn explain --json` */
  constructor(text) {
    this.text = text;
    this.json = JSON.parse(text);
    this.parameters = this.json.parameters || [];
    this.steps = this.json.steps;
    this.byName = new Map();
    const special = /"(nan|-?inf)"/.test(text);  // rare, and the numbers are many
    for (const step of [...this.parameters, ...this.steps]) {
      if (special && step.kind !== 'words') step.values = numbers(step.values);
      if (isListOfOne(step)) {
        step.values = step.values[0];
        step.hidden &&= step.hidden[0];
      }
      this.byName.set(step.name, step);
    }
    this.order = new Map([...this.parameters, ...this.steps].map((step, at) => [step.name, at]));
    this.batch = Math.max(1, ...this.steps.map(step => step.batch));
    this.heads = Math.max(1, ...this.steps.map(step => step.heads));
  }

  /** The step or parameter of that name, or undefined. */
  step(name) {
    return this.byName.get(name);
  }

  /** The matrix of one sentence and head: a list of rows. Steps without batch or heads are the same for each. */
  matrix(step, sentence, head) {
    return nested(step, step.values, sentence, head);
  }

  /** Why each pair is masked: a matrix of null or a word; null if the step has none. */
  hidden(step, sentence, head) {
    return step.hidden ? nested(step, step.hidden, sentence, head) : null;
  }

  rowLabels(step, sentence) {
    const rows = step.kind === 'words' ? step.values : step.rows;
    return labels(rows, sentence) || this.matrix(step, sentence, 0).map((_, i) => String(i));
  }

  columnLabels(step, sentence) {
    const first = this.matrix(step, sentence, 0)[0];
    return labels(step.columns, sentence) || (Array.isArray(first) ? first.map((_, j) => String(j)) : ['']);
  }

  /** The query that is worked out, from 0. */
  query() {
    const query = this.json.query ?? 0;
    return query < 0 ? query + this.tokens(0).length : query;
  }

  /** The tokens of the queries, or with `keys` of the keys. */
  tokens(sentence, keys = false) {
    const step = keys && this.step('tokens_to') || this.step('tokens');
    return step ? labels(step.values, sentence) : [];
  }

  /** The largest finite magnitude of a step, over all sentences and heads. */
  largest(step) {
    step.largest ??= magnitude(step.values);
    return step.largest;
  }
}

function labels(lists, sentence) {
  if (!lists) return null;
  return Array.isArray(lists[0]) ? lists[Math.min(sentence, lists.length - 1)] : lists;
}

function nested(step, values, sentence, head) {
  if (step.batch > 1) values = values[Math.min(sentence, step.batch - 1)];
  if (step.heads > 1) values = values[Math.min(head, step.heads - 1)];
  return Array.isArray(values[0]) || !values.length ? values : values.map(value => [value]);
}

function magnitude(values) {
  let largest = 0;
  for (const value of values) {
    const size = Array.isArray(value) ? magnitude(value) : Math.abs(value);
    if (size > largest && size < Infinity) largest = size;
  }
  return largest;
}

/** Whether steps are shown one cell a pair of tokens. */
export const isPairs = step => step.kind === 'pairs' || step.kind === 'weights';
/** A place in the explanation as one word, for maps and for the address of the page. */
export const placeKey = place => [place.step, place.sentence, place.head, place.row, place.column].join('.');
