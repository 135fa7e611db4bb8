// web/page/controls.js: the bar of panels above the steps: score, mask, sizes, more, compare, code, files.
import {byId, make, setText} from './elements.js';
import {say} from './words.js';
import {Field, optionFields} from './fields.js';
import {runsOf} from './display.js';
import {isOff} from './what_if.js';
import {OPTIONS} from './state.js';
import {MaskPanel} from './mask_panel.js';
import {CodePanel} from './code_panel.js';

const WIDE = matchMedia('(min-width: 1051px)');  // where the page has two columns, as in style.css
const PANELS = ['score', 'mask', 'sizes', 'more', 'compare', 'code', 'files'];

/** The bar and its panels. */
export class Controls {
  /** @param {object} page main.js: change, redraw, comparison, saveSvg, saveJson, files ... */
  constructor(page) {
    this.page = page;
    this.open = '';
    this.bar = byId('bar');
    this.room = byId('panel');
    this.buttons = {};
    for (const name of PANELS) {
      this.buttons[name] = make('button.tab', {type: 'button', 'aria-expanded': 'false', 'aria-controls': 'panel',
        'data-panel': name, on: {click: () => this.toggle(name)}}, make('span'), make('small'));
      this.bar.append(this.buttons[name]);
    }
    const fields = optionFields(page.change);
    this.fields = {};
    this.panels = {};
    for (const [name, list] of Object.entries(fields)) {
      this.fields[name] = list.map(spec => new Field(spec));
      this.panels[name] = make('div.fields', {}, ...this.fields[name].map(field => field.element));
    }
    this.again = make('button', {type: 'button', 'data-say': 'draw_again', on: {click: () =>
      page.change(state => { state.options.seed = 1 + Math.floor(Math.random() * 9999); }, 'seed')}});
    this.panels.sizes.append(this.again);
    this.mask = new MaskPanel(page);
    this.panels.mask = this.mask.element;
    this.code = new CodePanel(page);
    this.panels.code = this.code.element;
    this.panels.compare = this.#compare();
    this.panels.files = page.filesPanel.element;
    this.room.append(...PANELS.map(name => this.panels[name]));
    this.room.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        const {open} = this;
        this.toggle(open);
        this.buttons[open]?.focus();
      }
    });
    this.toggle('');
    WIDE.addEventListener('change', () => this.#place());
    new ResizeObserver(() => this.#measure()).observe(this.bar.parentElement);
  }

  /** While pairs are painted, the panel is beside the matrices or, where there is one column, small. */
  #place() {
    const beside = this.page.painting.on && WIDE.matches, home = beside ? byId('beside') : this.bar.parentElement;
    byId('content').classList.toggle('painting', this.page.painting.on);
    if (this.room.parentElement !== home) {
      const focused = this.room.contains(document.activeElement) ? document.activeElement : null;
      home.append(this.room);
      focused?.focus({preventScroll: true});
    }
    this.#measure();
  }

  /** What the bar and its panel cover at the top: a step that is brought into view comes below it. */
  #measure() {
    document.documentElement.style.setProperty('--covered', `${this.bar.parentElement.offsetHeight}px`);
  }

  /** Opens a panel, or closes it if it is open. */
  toggle(name) {
    this.open = this.open === name ? '' : name;
    this.room.hidden = !this.open;
    for (const panel of PANELS) {
      this.panels[panel].hidden = panel !== this.open;
      this.buttons[panel].setAttribute('aria-expanded', panel === this.open);
    }
    this.page.painting.on &&= this.open === 'mask';
    this.#place();
    if (this.page.display) this.update(this.page.state);
  }

  #compare() {
    const {page} = this;
    this.with = new Field({name: 'compare', type: 'choice', get: state => state.compare, set: value =>
        page.comparison.choose(value),
      choices: state => [['', say('choice_none')], ['before', state.before || !isOff(state.off) ? say('run_held')
        : say('run_all_on')],
        ...Array.from({length: state.headCount || 1}, (_, n) => [`head:${n}`, say('compare_head', {n})])
          .filter((_, n) => state.headCount > 1 && n !== state.head)]});
    this.shown = new Field({name: 'shown', type: 'choice', choices: state => {
      const runs = runsOf(state);
      return [['difference', say('difference_of', runs)], ['before', runs.before], ['after', runs.after],
        ['both', say('side_by_side')]];
    },
      get: state => state.shown, set: value => page.redraw(state => { state.shown = value; }),
      shown: state => state.compare !== ''});
    this.hold = make('button', {type: 'button', 'data-say': 'hold', on: {click: () => page.comparison.hold()}});
    this.last = make('button', {type: 'button', 'data-say': 'hold_last',
                                on: {click: () => page.comparison.holdLast()}});
    this.on = make('button', {type: 'button', 'data-say': 'all_on', on: {click: () => page.comparison.allOn()}});
    this.none = make('button', {type: 'button', 'data-say': 'no_chosen',
                                on: {click: () => page.redraw(state => { state.chosen = []; })}});
    return make('div.fields', {}, this.with.element, this.shown.element, this.hold, this.last, this.on, this.none);
  }

  /** Shows the state in the bar and in the open panel. */
  update(state) {
    this.#place();
    const count = names => names.filter(name => state.options[name] !== OPTIONS[name]).length;
    const notes = {
      score: state.options.score !== 'scaled_dot' ? say(`choice_${state.options.score}`)
        : count(['temperature', 'softcap', 'bias', 'sink', 'dropout_p', 'score_mod']) || '',
      mask: this.mask.summary(state), sizes: state.options.heads > 1 ? say('n_heads', {n: state.options.heads}) : '',
      more: count(['output_projection', 'learned_query', 'gradients', 'query', 'weights', 'cache', 'packed']) || '',
      compare: state.compare || state.off.keys.length + state.off.weights.length + state.off.heads.length ? '●' : '',
      code: '', files: this.page.filesPanel.summary(),
    };
    for (const name of PANELS) {
      const [title, note] = this.buttons[name].children;
      setText(title, say(`panel_${name}`));
      setText(note, notes[name]);
    }
    if (this.open in this.fields) for (const field of this.fields[this.open]) field.update(state);
    if (this.open === 'mask') this.mask.update(state);
    if (this.open === 'code') this.code.update(state);
    if (this.open === 'files') this.page.filesPanel.update();
    if (this.open === 'compare') {
      this.with.update(state);
      this.shown.update(state);
      this.on.hidden = !(state.off.keys.length + state.off.weights.length + state.off.heads.length);
      this.none.hidden = !state.chosen.length;
      this.last.hidden = Boolean(this.page.filesPanel.model);  // a layer and a head are no part of the state
    }
  }
}
