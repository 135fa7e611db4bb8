// web/page/inspector.js: the fixed panel that takes one number apart: products and sums, where they come from, and
// what can
// be done with it.
import {isPairs} from './explanation.js';
import {trace} from './trace.js';
import {make} from './elements.js';
import {say} from './words.js';
import {full, short} from './numbers.js';
import {titleOf} from './steps.js';
import {runsOf} from './display.js';

const MOST_TERMS = 16, MOST_KEYS = 20;  // shown at first

/** The panel. */
export class Inspector {
  /** @param {HTMLElement} root @param {object} events of main.js: go, back, unpin, switchOff, pull */
  constructor(root, events) {
    Object.assign(this, {root, events, all: false});
    this.head = root.appendChild(make('header'));
    this.body = root.appendChild(make('div.made'));
    this.actions = root.appendChild(make('div.actions'));
  }

  /** With nothing to show: how to begin. */
  empty() {
    this.place = this.made = null;
    this.head.replaceChildren(make('p.hint', {text: say('hint')}));
    this.body.replaceChildren();
    this.actions.replaceChildren();
  }

  /** How to go on, below what is shown. */
  hint() {
    this.actions.replaceChildren(make('p.hint', {text: say('hint')}));
  }

  /**
   * Takes the number at a place apart.
   * @param {Display} display
   * @param {{step: string, row: number, column: number}} place
   * @param {{pinned: boolean, history: object[], all: boolean}} how
   * @returns {Trace|null}
   */
  show(display, place, {pinned, history, all = false}) {
    const {explanation} = display, step = explanation.step(place.step);
    const values = display.values(step), mode = display.mode(step);
    if (!values[place.row] || values[place.row][place.column] === undefined) return this.empty();
    const whole = {step: place.step, sentence: Math.min(display.sentence, step.batch - 1), head: display.headOf(step),
                   row: place.row, column: place.column};
    this.place = whole;
    const source = display.source(step);
    this.from = source.explanation;
    this.made = trace(source.explanation, {...whole, head: source.head});
    const value = values[place.row][place.column];
    const engine = explanation.matrix(step, display.sentence, display.head)[place.row][place.column];
    this.head.replaceChildren(...this.#heading(display, step, whole, pinned), ...this.#value(display, step, mode, whole,
                                                                                             value, engine));
    const own = source.explanation === explanation && source.head === whole.head;  // the library's number is worked out
    this.body.replaceChildren(...this.#made(display, step, whole, own ? engine : null, all));
    this.actions.replaceChildren(...(pinned ? this.#actions(display, step, whole, history) : []));
    return this.made;
  }

  #heading(display, step, place, pinned) {
    const {explanation, sentence} = display, rows = explanation.rowLabels(step, sentence);
    const columns = explanation.columnLabels(step, sentence);
    const name = make('span.name', {text: titleOf(step)});
    const at = isPairs(step) ? `${rows[place.row]} → ${columns[place.column]}`
      : columns.length > 1 ? `${rows[place.row]}, ${columns[place.column]}` : rows[place.row];
    const parts = [name, make('span.at', {text: at})];
    if (step.heads > 1) parts.push(make('span.of', {text: say('head_n', {n: place.head})}));
    if (pinned) parts.push(make('button.unpin', {type: 'button', text: '✕', title: say('unpin'),
        'aria-label': say('unpin'),
                                                 on: {click: () => this.events.unpin()}}));
    return [make('h2', {}, ...parts)];
  }

  #value(display, step, mode, place, value, engine) {
    const write = number => number === null ? display.sign(step, place.row, place.column) : full(number);
    const now = make('p.value', {text: write(value)});
    if (mode === 'plain') return [now];
    if (mode === 'pull') {
      const {pin} = display.state, own = pin.step === place.step && pin.row === place.row &&
          pin.column === place.column;
      now.textContent = own ? write(engine) : short(value, 6);
      return own ? [now] : [now, make('p.small', {text: say('pull_value', {value: write(engine)})})];
    }
    if (mode === 'stale') return [make('p.value', {text: write(engine)}), make('p.small', {text: say('mode_stale')})];
    const own = display.plain(step)[place.row][place.column];
    if (mode === 'off') {
      return [now, make('p.small', {text: say('engine_gave', {value: write(engine)})}),
              make('p.small', {text: say('computed_here')}),
              ...step.operation === 'softmax' ? display.rowsOff(step).map(text => make('p.small', {text})) : []];
    }
    const before = display.before(step)?.[place.row][place.column];
    if (before === undefined) return [now];  // runs of other tokens
    return [now, make('p.small', {text: say('two_runs',
        {...runsOf(display.state), first: write(before), second: write(own)})})];
  }

  #made(display, step, place, engine, all) {
    const reason = display.explanation.hidden(step, place.sentence, place.head)?.[place.row]?.[place.column];
    const parts = [];
    if (reason) parts.push(make('p.reason', {text: say(`because_${reason}`)}));
    const isOff = isPairs(step) && display.state.off.keys.includes(place.column);
    if (!reason && isOff && this.made?.value === null) parts.push(make('p.reason', {text: say('because_key_off')}));
    if (this.made?.off) parts.push(make('p.reason', {text: say(`because_${this.made.off}_off`)}));
    if (!step.operation) return [...parts, make('p.small', {text: step.source || say('parameter')})];
    const symbol = this.made?.formula;
    parts.push(make('p.line', {}, make('code',
        {text: `${titleOf(step)} = ${step.formula || symbol || step.operation}`}),
                    symbol && symbol !== step.formula ? make('code.how', {text: symbol}) : null));
    if (!this.made) return [...parts, ...this.#fromText(display, step, place)];
    if (['difference', 'both'].includes(display.mode(step)))
      parts.push(make('p.small', {text: say('taken_apart', {run: runsOf(display.state).after})}));
    if (this.made.softmax) return [...parts, this.#softmax(display, step, place.row, all)];
    if (this.made.value === null) return parts;
    return [...parts, ...this.#terms(display, this.made, engine, all)];
  }

  /** Numbers that are not sums: where they come from. */
  #fromText(display, step, place) {
    const text = say(`operation_${step.operation}`), list = (step.inputs || []).map(name =>
        display.explanation.step(name))
      .filter(input => input && input.kind !== 'words');
    const [row, column] = step.operation === 'row_of' ? [display.explanation.query(), place.row]  // its rows are keys
      : [place.row, place.column];
    const same = list.filter(input => display.values(input)[row] !== undefined);
    return [make('p.small', {text:
        text.startsWith('operation_') ? step.source || step.note : text}), ...same.map(input => {
      const values = display.values(input)[row], at = Math.min(column, values.length - 1);
      return make('p', {}, this.#factor(display, {place: {step: input.name, row, column: at, head: place.head},
                                                  value: values[at]}));
    })];
  }

  #factor(display, {place, value}, named = true) {
    const step = this.from.step(place.step), sentence = display.sentence;
    const row = this.from.rowLabels(step, sentence)[place.row];
    const column = this.from.columnLabels(step, sentence)[place.column];
    const name = `${titleOf(step)} [${row}, ${column}]`;
    return make('button.factor', {type: 'button', title: name,
                                  disabled: !display.explanation.step(place.step),  // a step of the held state alone
                                  on: {click: () => this.events.go(place)}},
                named ? make('i', {text: titleOf(step)}) : null, `${named ? ' ' : ''}${value === null
                  ? display.sign(step, place.row, place.column) : short(value)}`);
  }

  #terms(display, made, engine, all) {
    const {terms} = made, many = terms.length > MOST_TERMS && !all;
    const shown = many ? terms.slice(0, MOST_TERMS) : terms;
    const several = terms.length > 1 || terms[0]?.factors.length > 1;
    const rows = shown.map((term, at) => {
      const product = make('td');
      term.factors.forEach((factor, n) => product.append(n ? ' × ' : '', this.#factor(display, factor)));
      if (term.text) product.append(` × ${term.text.replace(/^× /, '')}`);
      return make('tr', {}, make('td.sign', {text: at ? '+' : ''}), product,
                  several ? make('td.result', {text: `= ${short(term.value)}`}) : null);
    });
    if (many) {
      const rest = terms.slice(MOST_TERMS).reduce((total, term) => total + term.value, 0);
      rows.push(make('tr', {}, make('td.sign', {text: '+'}), make('td', {},
        make('button', {type: 'button', text: say('more_terms', {n: terms.length - MOST_TERMS}),
                        on: {click: () => this.events.showAll()}})), make('td.result', {text: `= ${short(rest)}`})));
    }
    if (terms.length > 1) rows.push(line('Σ', short(made.sum)));
    for (const {text, value} of made.after) rows.push(line(text, short(value)));
    return [make('table.terms', {}, make('tbody', {}, ...rows)),
            ...engine === null ? [] : [make('p.small', {text: say('engine_value', {value: full(engine)})})]];
  }

  #softmax(display, step, row, all) {
    const {softmax} = this.made;
    const keys = this.from.columnLabels(this.from.step(step.name), display.sentence);
    const head = make('tr', {}, ...['key', 'score', 'minus_max', 'exp', 'share'].map(name =>
      make('th', {scope: 'col', text: say(`softmax_${name}`)})));
    const least = all || keys.length <= MOST_KEYS ? -1
      : softmax.entries.map(entry => entry.exp).sort((a, b) => b - a)[MOST_KEYS];
    const shown = softmax.entries.map((entry, j) => ({...entry, j})).filter(({exp, chosen}) => exp > least || chosen);
    const rows = shown.map(entry => make(entry.chosen ? 'tr.chosen' : 'tr', {},
      make('th', {scope: 'row', text: keys[entry.j]}),
      make('td', {}, entry.factor.value === null ? display.sign(step, row, entry.j)
        : this.#factor(display, entry.factor, false)),
      make('td', {text: entry.minus === null ? '' : short(entry.minus)}),
      make('td', {text: entry.minus === null ? '0' : short(entry.exp)}),
      make('td', {text: entry.share === null ? '' : short(entry.share)})));
    if (shown.length < keys.length) {
      rows.push(make('tr', {}, make('td', {colspan: 3}, make('button', {type: 'button',
        text: say('more_keys', {n: keys.length - shown.length}), on: {click: () => this.events.showAll()}})),
            make('td', {
        text: short(softmax.entries.reduce((total, {exp}) => total + exp, 0) - shown.reduce((t, {exp}) => t + exp,
            0))}),
        make('td')));
    }
    if (softmax.sink !== undefined) {
      rows.push(make('tr', {}, make('th', {scope: 'row', text: say('sink')}), make('td', {text: short(softmax.sink)}),
                     make('td', {text: short(softmax.sink - softmax.largest)}),
                         make('td', {text: short(softmax.sinkExp)}),
                     make('td', {text: short(softmax.sinkExp / softmax.total)})));
    }
    rows.push(make('tr.total', {}, make('th', {scope: 'row', text: 'Σ'}), make('td'), make('td'),
                   make('td', {text: short(softmax.total)}),
                   make('td', {text: softmax.left === 1 ? '1' : short(softmax.left)})));
    return make('div.wide', {}, make('table.softmax', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
  }

  #actions(display, step, place, history) {
    const list = [], button = (text, run, pressed) => list.push(make('button', {
      type: 'button', text, 'aria-pressed': pressed === undefined ? null : String(pressed), on: {click: run}}));
    const {off, pull} = display.state, keys = display.explanation.tokens(display.sentence, true);
    if (history.length) button(say('back', {step: titleOf(display.explanation.step(history.at(-1).step) || step)}),
                               () => this.events.back());
    const key = isPairs(step) ? place.column : step.key_rows ? place.row : null;
    if (key !== null && keys[key] !== undefined)
      button(say('off_key', {key: keys[key]}), () => this.events.switchOff('keys', key), off.keys.includes(key));
    if (step.kind === 'weights') {
      const name = `${place.row}.${place.column}`;
      button(say('off_weight'), () => this.events.switchOff('weights', name), off.weights.includes(name));
    }
    if (step.heads > 1)
      button(say('off_head', {n: place.head}), () => this.events.switchOff('heads', place.head),
          off.heads.includes(place.head));
    if (this.made?.partials.length) button(say('pull'), () => this.events.pull(), pull);
    return list;
  }
}

const line = (text, value) => make('tr.sum', {}, make('td.sign'), make('td', {text}),
    make('td.result', {text: `= ${value}`}));
