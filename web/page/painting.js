// web/page/painting.js: painting a mask on the matrices, pair by pair.
import {isPairs} from './explanation.js';
import {paintPair} from './mask.js';

const PAINTED = ['causal', 'window', 'mask'];  // reasons of a mask: painting can undo them

export class Painting {
  /** @param {object} page main.js: explanation, display, size, change */
  constructor(page) {
    this.page = page;
    this.on = false;
    this.anchor = null;  // the element that is painted on: it stays where it is on the screen
  }

  /** The step that is painted on first: the weights, or what else has a cell for each pair. */
  firstStep() {
    const {steps} = this.page.explanation;
    return steps.find(each => each.kind === 'weights') ?? steps.find(isPairs) ?? steps[0];
  }

  /** What masks each pair, as the engine says: a matrix of null or a word; null if nothing does. */
  #maskedPairs() {
    const {explanation, display} = this.page, {steps} = explanation;
    const step = steps.find(each => each.hidden && each.name === 'mask') ?? steps.find(each => each.hidden);
    return step ? explanation.hidden(step, display.sentence, 0) : null;
  }

  /** Which keys the mask lets each query see; null for padding. */
  seen() {
    const {rows, keys} = this.page.size(), masked = this.#maskedPairs();
    return Array.from({length: rows}, (_, i) => Array.from({length: keys}, (_, j) => {
      const reason = masked?.[i]?.[j];
      return reason === 'padding' ? null : !PAINTED.includes(reason);
    }));
  }

  /** Masks a pair or lets it take part. */
  paint(row, column, view) {
    this.anchor = view.element;
    const hidden = this.#maskedPairs()?.[row]?.[column];
    if (hidden && !PAINTED.includes(hidden)) return;
    this.page.change(state => paintPair(state.mask, row, column, Boolean(hidden)), 'paint');
  }

  /** Draws with `draw`; what is painted on stays where it is on the screen. */
  keepPlace(draw) {
    const anchor = this.on && this.anchor, before = anchor ? anchor.getBoundingClientRect().top : 0;
    draw();
    if (anchor?.isConnected) scrollBy({top: anchor.getBoundingClientRect().top - before, behavior: 'instant'});
  }
}
