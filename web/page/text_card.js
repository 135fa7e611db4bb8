// web/page/text_card.js: the text, a second text, a batch, and how they are cut into tokens.
import {byId, make} from './elements.js';
import {say} from './words.js';
import {Field} from './fields.js';

const MOST_TEXTS = 6;

/** The card with the texts. */
export class TextCard {
  constructor(page) {
    this.page = page;
    this.root = byId('texts');
    this.lines = [];
    this.to = this.#line('second_text', value => page.change(state => { state.to = value; }, 'to'),
                         () => page.change(state => { state.to = null; }, 'to'));
    this.add = make('button', {type: 'button', 'data-say': 'add_text', on: {click: () => page.change(state => {
      state.batch = true;
      state.to = null;
      state.text.push(say('another_text'));
    }, 'text')}});
    this.cross = make('button', {type: 'button', 'data-say': 'add_second', on: {click: () => page.change(state => {
      state.to = say('another_text');
      state.batch = false;
      state.text.length = 1;
      if (state.mask.causal) state.mask.causal = 'top_left';
    }, 'to')}});
    this.tokens = new Field({name: 'tokens', type: 'choice', choices: ['auto', 'words', 'characters'],
      get: state => state.options.tokens, set: value => page.change(state => { state.options.tokens = value; },
          'tokens')});
    this.sentence = new Field({name: 'sentence', type: 'choice', get: state => state.sentence,
      set: value => page.redraw(state => { state.sentence = +value; }), shown: state => state.text.length > 1,
      choices: state => state.text.map((text, at) => [at, `${at + 1}: ${text.slice(0, 24)}`])});
    this.buttons = make('div.fields', {}, this.tokens.element, this.add, this.cross, this.sentence.element);
    this.root.append(this.to.element, this.buttons);
  }

  #line(name, set, remove) {
    const input = make('input.text', {type: 'text', spellcheck: 'false', autocomplete: 'off',
                                      on: {input: () => set(input.value)}});
    const button = make('button.remove', {type: 'button', text: '✕', on: {click: remove}});
    return {name, input, button, element: make('div.textline', {}, input, button)};
  }

  update(state) {
    while (this.lines.length > state.text.length) this.lines.pop().element.remove();
    while (this.lines.length < state.text.length) {
      const at = this.lines.length;
      const line = this.#line('text', value => this.page.change(now => { now.text[at] = value; }, 'text'),
        () => this.page.change(now => {
          now.text.splice(at, 1);
          now.batch = now.text.length > 1;
          now.sentence = 0;
        }, 'text'));
      this.lines.push(line);
      this.root.insertBefore(line.element, this.to.element);
    }
    state.text.forEach((text, at) => this.#show(this.lines[at], text, state.text.length > 1 ? say('text_n', {n: at + 1})
                                                                                             : say('text')));
    this.lines.forEach(line => { line.button.hidden = state.text.length < 2; });
    this.to.element.hidden = state.to === null;
    this.#show(this.to, state.to ?? '', say('second_text'));
    this.add.hidden = state.text.length >= MOST_TEXTS;
    this.cross.hidden = state.to !== null;
    this.tokens.update(state);
    this.sentence.update(state);
  }

  #show(line, text, label) {
    if (line.input.value !== text) line.input.value = text;
    line.input.setAttribute('aria-label', label);
    line.button.setAttribute('aria-label', say('remove', {what: label}));
  }
}
