// web/page/comparison.js: what the numbers on the page are compared with: a held state, or the state before the last
// change.
import {Explanation} from './explanation.js';
import {fromHash, newState, toHash} from './state.js';
import {isOff} from './what_if.js';

const ONE_CHANGE = 1500;  // ms: changes of one field that follow each other within this are one change

/** The state as a hash, without what it is compared with. */
export const bareHash = state => toHash({...state, compare: '', before: ''});

export class Comparison {
  /** @param {object} page main.js: state, explanation, questions, filesPanel, ask, redraw */
  constructor(page) {
    this.page = page;
    this.reference = null;  // the explanation that is compared with
  }

  /** Notes a change of the state: `before` is its hash before it, `what` the field. */
  changed(what, before) {
    const now = performance.now();
    if (what !== this.lastChange || now - this.lastTime > ONE_CHANGE) this.beforeLast = before;
    this.lastChange = what;
    this.lastTime = now;
  }

  /** What is compared with: the held state, explained again; with a model or own matrices the held numbers. */
  async read() {
    const {state, filesPanel, questions} = this.page, of = `${filesPanel.taken} ${state.before}`;
    if (state.compare !== 'before' || !state.before) this.reference = null;
    else if (state.before === 'held') this.reference = this.held ?? null;
    else if (this.referenceOf !== of || !this.reference)
      this.reference = new Explanation(await questions.explain(fromHash(state.before, state.language)));
    this.referenceOf = of;
  }

  /** Compares with what the field says: nothing, a held state, another head. */
  choose(value) {
    const {state} = this.page;
    state.compare = value;
    if (value === 'before' && !state.before && !isOff(state.off)) return this.hold();
    return this.page.ask();
  }

  /** Holds the state as it is, with nothing switched off. */
  hold() {
    const {state, explanation, filesPanel} = this.page;
    this.held = explanation;
    const bare = {...state, compare: '', before: '', pin: null, off: newState().off};
    return this.#compareWith(filesPanel.summary() ? 'held' : toHash(bare));
  }

  /** Holds the state before the last change. */
  holdLast() {
    return this.#compareWith(this.beforeLast ?? bareHash(this.page.state));
  }

  /** Switches everything on that is switched off. */
  allOn() {
    this.page.redraw(state => { state.off = newState().off; });
  }

  #compareWith(before) {
    this.page.state.before = before || 'heads=1';
    this.page.state.compare = 'before';
    return this.page.ask();
  }
}
