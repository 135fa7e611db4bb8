// web/page/mask_panel.js: the mask by clicking: causal, window, prefix, lengths, documents, single pairs; as code.
import {make, setText} from './elements.js';
import {say} from './words.js';
import {Field} from './fields.js';
import {maskText, namedMask, noMask} from './mask.js';
import {isCross} from './state.js';
import {codeName, copyBox} from './code_panel.js';

/** The panel of the mask. */
export class MaskPanel {
  constructor(page) {
    this.page = page;
    const part = (name, spec) => ({name, get: state => state.mask[name],
      set: value => page.change(state => { state.mask[name] = value; }, 'mask'), ...spec});
    const side = (name, at) => ({name, type: 'number', min: 0, step: 1, off: null, empty: 'all_keys',
      get: state => state.mask.window?.[at] >= 0 ? state.mask.window[at] : null, set: value => page.change(state => {
        const window = state.mask.window ? [...state.mask.window] : [-1, -1];
        window[at] = value ?? -1;
        state.mask.window = window[0] < 0 && window[1] < 0 ? null : window;
      }, 'mask')});
    const wholeNumber = (name) => part(name, {type: 'number', min: 0, step: 1, off: 0, get: state =>
        state.mask[name] || null,
      set: value => page.change(state => { state.mask[name] = value; }, 'mask')});
    this.fields = [
      {name: 'causal', type: 'check', get: state => state.mask.causal !== '', shown: state => !isCross(state),
       set: value => page.change(state => { state.mask.causal = value ? 'top_left' : ''; }, 'mask')},
      part('causal', {name: 'causal_align', type: 'choice', shown: isCross,
                      choices: () => [['', say('choice_none')], ['top_left', 'top_left'],
                          ['bottom_right', 'bottom_right']]}),
      side('window_left', 0), side('window_right', 1), wholeNumber('prefix'), wholeNumber('keys'),
      part('text', {name: 'mask_text', type: 'text'}),
    ].map(spec => new Field(spec));
    this.paint = make('button.toggle', {type: 'button', 'data-say': 'paint', 'aria-pressed': 'false',
        on: {click: () => {
      page.painting.on = !page.painting.on;
      page.redraw(() => {});
      if (page.painting.on) page.steps.reveal({step: page.painting.firstStep().name, row: 0, column: 0}, false);
    }}});
    this.clear = make('button', {type: 'button', 'data-say': 'clear_mask',
                                 on: {click: () => page.change(state => { state.mask = noMask(); }, 'mask')}});
    this.documents = make('div.documents', {role: 'group'});
    this.about = make('p.small', {'data-say': 'paint_how'});
    this.named = make('button.named', {type: 'button', on: {click: () =>
      page.change(state => { state.mask = this.same; }, 'mask')}});
    this.codes = ['cpp', 'python', 'command'].map(name => copyBox(name));
    this.tab = 'cpp';
    this.tabs = this.codes.map(({name}) => make('button.tab', {type: 'button', on: {click: () => {
      this.tab = name;
      this.update(page.state);
    }}}));
    this.element = make('div.maskpanel', {}, make('div.fields', {}, ...this.fields.map(field => field.element),
        this.paint,
      this.clear), this.about, this.named, this.documents, make('div.tabs', {}, ...this.tabs),
      make('div.codes', {}, ...this.codes.map(box => box.element)));
  }

  summary(state) {
    const {mask} = state, text = maskText({...mask, documents: [], hide: [], show: []}, {cross: isCross(state)});
    return [text, mask.documents.length ? say('documents') : '', mask.hide.length + mask.show.length ? say('painted')
        : '']
      .filter(Boolean).join(' + ');
  }

  update(state) {
    for (const field of this.fields) field.update(state);
    this.paint.setAttribute('aria-pressed', this.page.painting.on);
    this.about.hidden = !this.page.painting.on;
    this.same = state.mask.hide.length + state.mask.show.length ? namedMask(this.page.painting.seen()) : null;
    this.named.hidden = !this.same;
    if (this.same) setText(this.named, say('use_name', {name: maskText(this.same, {cross: isCross(state)})}));
    this.#documents(state);
    const {mask} = this.page.code();
    this.codes.forEach((box, at) => {
      box.update(mask[box.name] || say('no_mask'), mask[box.name] ? this.page.refused : say('no_mask'));
      box.element.hidden = box.name !== this.tab;
      setText(this.tabs[at], codeName(box.name));
      this.tabs[at].setAttribute('aria-pressed', box.name === this.tab);
    });
  }

  /** The tokens with a place between each two, where a document may end. */
  #documents(state) {
    const tokens = isCross(state) ? [] : state.tokens || [], starts = new Set(state.mask.documents);
    this.documents.hidden = tokens.length < 2 || tokens.length > 64 || Boolean(state.mask.text);
    const key = JSON.stringify([tokens, state.mask.documents, this.documents.hidden, say('documents')]);
    if (this.documents.hidden || key === this.key) return;
    this.key = key;
    const focused = this.documents.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    this.documents.setAttribute('aria-label', say('documents'));
    this.documents.replaceChildren(make('span.small', {text: say('documents_how')}), ...tokens.flatMap((token, at) => [
      at === 0 ? null : make('button.cut', {type: 'button', 'data-at': at, 'aria-pressed': String(starts.has(at)),
        'aria-label': say('document_before', {token}), title: say('document_before', {token}), on: {click: () =>
          this.page.change(now => {
            const list = now.mask.documents;
            now.mask.documents = (list.includes(at) ? list.filter(each => each !== at) : [...list, at]).sort((a, b) =>
                a - b);
          }, 'mask')}}),
      make('span', {text: token})].filter(Boolean)));
    if (focused) this.documents.querySelector(`[data-at="${focused}"]`)?.focus();
  }
}
