// web/page/display.js: which numbers each matrix shows: the engine's, a difference from a reference, two runs beside
// each other, with something switched off, or the pull of one number.
import {isPairs} from './explanation.js';
import {isOff, rowsOff, switchOff, withOff} from './what_if.js';
import {pulls} from './trace.js';
import {newState} from './state.js';
import {signedClass, weightClass} from './colours.js';
import {short, weight} from './numbers.js';
import {say} from './words.js';

const SIGNS = {causal: '·', window: '○', mask: '▫', padding: '×', score: '∞', not_returned: '–',  // the command's
               off: '⊘'};

/** The sign that stands for a masked pair of each kind. */
export const hiddenSign = reason => SIGNS[reason] || '·';

/** The names of the two runs that are compared: the one held or the other head, and the one that is current. */
export function runsOf({compare, before, head, off}) {
  const other = /^head:(\d+)$/.exec(compare);
  if (other) return {before: say('head_n', {n: +other[1]}), after: say('head_n', {n: head})};
  if (!before && isOff(off)) return {before: say('run_all_on'), after: say('run_parts_off')};
  return {before: say('run_held'), after: say('run_now')};
}

/** A mode in words; null for the plain numbers. */
export function modeText(mode, state) {
  if (!mode || mode === 'plain') return null;
  const runs = runsOf(state);
  if (mode === 'before') return runs.before;
  return mode === 'difference' || mode === 'both' ? say(`${mode}_of`, runs) : say(`mode_${mode}`);
}

/** What is on screen: an explanation, the state of the view, and what it is compared with. */
export class Display {
  /**
   * @param {Explanation} explanation
   * @param {object} state
   * @param {Explanation|null} reference the explanation before a change, with `compare` "before"
   */
  constructor(explanation, state, reference) {
    Object.assign(this, {explanation, state, reference});
    this.sentence = Math.min(state.sentence, explanation.batch - 1);
    this.head = Math.min(state.head, explanation.heads - 1);
    this.off = switchOff(explanation, state.off);
    this.current = isOff(state.off) ? withOff(explanation, state.off, this.off.matrices) : explanation;
    this.pulled = state.pull && state.pin && explanation.step(state.pin.step) ? this.#pulls() : null;
    this.other = /^head:/.test(state.compare) ? Math.min(+state.compare.slice(5), explanation.heads - 1) : null;
    this.beside = state.compare && state.shown === 'both' && !this.pulled ? this.#beside() : null;
  }

  /** The run that is compared with, as a display of its own; null if nothing is held. */
  #beside() {
    const {explanation, state, reference, other} = this, own = {...state, compare: '', pull: false};
    if (other !== null) return new Display(explanation, {...own, head: other}, null);
    if (reference) return new Display(reference, {...own, off: newState().off}, null);
    return isOff(state.off) ? new Display(explanation, {...own, off: newState().off}, null) : null;
  }

  /** The step of the other run that is shown beside a step; null if there is none, or its numbers are the same. */
  #partner(step) {
    const {beside} = this, partner = beside?.explanation.step(step.name);
    if (!partner || partner.kind !== step.kind || step.kind === 'words') return null;
    const here = [this.plain(step), this.explanation.rowLabels(step, this.sentence)];
    const there = [beside.plain(partner), beside.explanation.rowLabels(partner, beside.sentence)];
    return JSON.stringify(here) === JSON.stringify(there) ? null : partner;
  }

  #pulls() {
    const {step, row, column} = this.state.pin;
    return pulls(this.explanation, {step, sentence: this.sentence, head: this.headOf(this.explanation.step(step)), row,
                                    column});
  }

  /** Whether the number that is kept can depend on a step. */
  #isBefore(step) {
    const {order} = this.explanation;
    return order.get(step.name) <= order.get(this.state.pin.step) && step.kind !== 'ids' && step.kind !== 'words';
  }

  headOf(step) {
    return Math.min(this.head, step.heads - 1);
  }

  /** The numbers that would be shown without a difference: the engine's, or with something off. */
  plain(step, head = this.headOf(step)) {
    const sentence = Math.min(this.sentence, step.batch - 1);
    return this.off.matrices.get(`${step.name}.${sentence}.${head}`) || this.explanation.matrix(step, sentence, head);
  }

  /** The numbers that a step is compared with, or null. */
  before(step) {
    if (this.other !== null && step.heads > 1) return this.plain(step, Math.min(this.other, step.heads - 1));
    if (this.state.compare !== 'before') return null;
    if (this.reference) {
      const same = this.reference.step(step.name);
      if (!same || same.kind !== step.kind) return null;
      const matrix = this.reference.matrix(same, this.sentence, this.head), own = this.plain(step);
      return matrix.length === own.length && matrix[0].length === own[0].length ? matrix : null;
    }
    return isOff(this.state.off) && this.off.matrices.has(`${step.name}.${this.sentence}.${this.headOf(step)}`)
      ? this.explanation.matrix(step, this.sentence, this.head) : null;
  }

  /** How a step is shown: 'plain', 'off', 'difference', 'before', 'both', 'pull' or 'stale'. */
  mode(step) {
    if (this.pulled) return this.#isBefore(step) ? 'pull' : 'stale';
    if (this.off.stale.has(step.name)) return 'stale';
    if (this.beside) {
      if (this.#partner(step)) return 'both';
    } else if (this.state.compare && this.state.shown !== 'both' && this.before(step)) {
      return this.state.shown === 'after' ? 'plain' : this.state.shown;
    }
    return this.off.matrices.has(`${step.name}.${Math.min(this.sentence, step.batch - 1)}.${this.headOf(step)}`)
      ? 'off' : 'plain';
  }

  /** What the shown number of a step is taken apart in: an explanation, and the head of it. */
  source(step) {
    const mode = this.mode(step), head = this.headOf(step);
    if (mode === 'pull' || mode === 'stale') return {explanation: this.explanation, head};
    if (mode !== 'before') return {explanation: this.current, head};
    if (this.other !== null) return {explanation: this.current, head: Math.min(this.other, step.heads - 1)};
    return {explanation: this.reference ?? this.explanation, head};
  }

  values(step, mode = this.mode(step)) {
    if (mode === 'pull') {
      return this.pulled.get(`${step.name}.${this.headOf(step)}`) ?? this.plain(step).map(row => row.map(() => 0));
    }
    if (mode === 'before') return this.before(step);
    const own = this.plain(step);
    if (mode !== 'difference') return own;
    const before = this.before(step);
    return own.map((row, i) => row.map((value, j) => {
      const was = before[i][j];
      if (value === null && was === null) return null;
      const gap = (value ?? 0) - (was ?? 0);
      return value === null || was === null ? (isPairs(step) && step.kind !== 'weights' ? null : gap) : gap;
    }));
  }

  /** The matrices of a step as they are drawn: one without a name, or the two runs with theirs. */
  runs(step, title) {
    if (this.mode(step) !== 'both') return [{name: '', data: this.data(step, title)}];
    const {before, after} = runsOf(this.state), {beside} = this, partner = this.#partner(step);
    const largest = Math.max(...[this.plain(step), beside.plain(partner)].map(largestOf),
                             this.explanation.largest(step), beside.explanation.largest(partner));
    return [{name: before, data: beside.data(partner, `${title}, ${before}`, largest)},
            {name: after, data: this.data(step, `${title}, ${after}`, largest)}];
  }

  /** Everything MatrixView.show needs; `scale`: the largest magnitude of both runs, which have the same colours. */
  data(step, title, scale = null) {
    const mode = this.mode(step), {explanation, sentence} = this, values = this.values(step, mode);
    const reasonOf = this.#reasonOf(step);
    const columns = explanation.columnLabels(step, sentence), keys = columns.length;
    const signed = mode === 'difference' || mode === 'pull' || step.kind !== 'weights';
    const largest = scale !== null ? scale : mode === 'difference' || mode === 'pull' ? largestOf(values)
      : Math.max(explanation.largest(step), mode === 'off' ? largestOf(values) : 0);
    const [four, three] = scale !== null ? [4, 6] : [12, 16];  // two matrices have half of the room each
    const digits = step.kind === 'checks' || step.kind === 'ids' ? 0 : keys <= four ? 4 : keys <= three ? 3 : 2;
    const size = value => signed ? signedClass(value, largest) : weightClass(value, keys);
    const write = step.kind === 'weights' ? weight : short;
    const plus = mode === 'difference' || mode === 'pull';
    return {
      label: title, rows: explanation.rowLabels(step, sentence), columns, values, digits, mode, signed,
      wholeColumns: !isPairs(step),
      classOf: (value, i, j) => value !== null ? size(value) : reasonOf(i, j) === 'not_returned' ? 'absent' : 'hid',
      textOf: (value, i, j) => value === null ? hiddenSign(reasonOf(i, j))
        : plus && value === 0 ? '0' : plus && value > 0 ? `+${write(value, digits)}` : write(value, digits),
    };
  }

  /** Why a cell of a step has no number: gives (row, column) => word, undefined where nobody says. */
  #reasonOf(step) {
    const {explanation, sentence, state} = this, head = this.headOf(step);
    if (step.operation !== 'row_of') {
      const hidden = explanation.hidden(step, sentence, head);
      return (i, j) => hidden?.[i]?.[j] ?? (isPairs(step) && state.off.keys.includes(j) ? 'off' : undefined);
    }
    const masked = explanation.steps.find(each => each.hidden), query = explanation.query();  // its rows are keys
    const hidden = masked && explanation.hidden(masked, sentence, head)[query];
    return i => hidden?.[i];
  }

  /** The sign of a cell without a number. */
  sign(step, row, column) {
    return hiddenSign(this.#reasonOf(step)(row, column));
  }

  /** What parts off do to the rows of the weights, in sentences. */
  rowsOff(step) {
    if (!isOff(this.state.off) || this.mode(step) === 'plain') return [];
    const sink = this.explanation.steps.find(each => each.operation === 'sink_weight');
    const rows = rowsOff(this.plain(step), sink && this.plain(sink), this.state.off);
    const labels = this.explanation.rowLabels(step, this.sentence), its = say(sink ? 'row_and_sink' : 'row_alone');
    return [rows.keys && say('rows_key_off', {row: its}), rows.empty && say('rows_empty'),
            rows.sums.length && say('rows_weight_off', {row: its, sums: rows.sums.map(({at, sum}) =>
              say('row_sum', {row: labels[at], sum: short(sum)})).join(say('comma'))})].filter(Boolean);
  }

  /** The reasons for masked pairs that are on screen. */
  reasons() {
    const found = new Set(this.state.off.keys.length ? ['off'] : []);
    for (const step of this.explanation.steps) {
      const hidden = this.explanation.hidden(step, this.sentence, this.headOf(step));
      for (const row of hidden || []) for (const reason of row) if (reason) found.add(reason);
    }
    return found;
  }
}

function largestOf(values) {
  let largest = 0;
  for (const row of values) for (const value of row) if (Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
}
