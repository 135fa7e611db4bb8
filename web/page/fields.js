// web/page/fields.js: the fields of the options: sliders, choices, numbers; each is drawn once and then kept true.
import {make, setText} from './elements.js';
import {say} from './words.js';

let count = 0;

/** A field with its label; `get` and `set` are how it meets the state. */
export class Field {
  /**
   * @param {{name: string, type: string, choices?: string[]|Function, min?: number, max?: number, step?: number,
   *          off?: number|null, empty?: string, on?: number, get: Function, set: Function, shown?: Function}} spec
   */
  constructor(spec) {
    this.spec = spec;
    const id = `field-${spec.name}-${++count}`;
    this.label = make('label', {for: id});
    this.input = this.#input(id);
    this.output = spec.type === 'range' ? make('output', {for: id}) : null;
    this.element = make(`div.field.${spec.type}`, {'data-field': spec.name},
                        ...(spec.type === 'check' ? [this.input, this.label] : [this.label, this.input, this.output]));
  }

  #input(id) {
    const {type, min, max, step} = this.spec, change = () => this.#changed();
    if (type === 'choice') return make('select', {id, on: {change}});
    if (type === 'check') return make('input', {id, type: 'checkbox', on: {change}});
    if (type === 'range') return make('input', {id, type, min, max, step, on: {input: change}});
    if (type === 'number') return make('input', {id, type, min, max, step, on: {input: change}});
    return make('input', {id, type: 'text', spellcheck: 'false', autocomplete: 'off', on: {input: change}});
  }

  #changed() {
    const {type, set, off} = this.spec, {input} = this;
    if (type === 'check') return set(input.checked);
    if (!input.validity.valid) return input.reportValidity();  // 1.5 keys: the browser says what is needed
    if (type === 'number' || type === 'range') {
      if (input.value === '') return off !== undefined ? set(off) : undefined;
      return Number.isFinite(+input.value) ? set(+input.value) : undefined;
    }
    return set(input.value);
  }

  /** Shows the state. */
  update(state) {
    const {name, type, choices, get, shown, off} = this.spec, value = get(state);
    this.element.hidden = shown ? !shown(state) : false;
    setText(this.label, say(`field_${name}`));
    if (this.spec.empty) this.input.placeholder = say(this.spec.empty);
    this.element.title = say(`about_${name}`) === `about_${name}` ? '' : say(`about_${name}`);
    if (type === 'choice') {
      const list = typeof choices === 'function' ? choices(state)
        : choices.map(choice => [choice, say(`choice_${choice}`)]);
      const key = JSON.stringify(list);
      if (key !== this.key) this.input.replaceChildren(...list.map(([v, text]) => make('option', {value: v, text})));
      this.key = key;
      this.input.value = value;
    } else if (type === 'check') this.input.checked = value;
    else if (document.activeElement !== this.input || type === 'range') {
      const text = value === null || value === undefined ? '' : String(value);
      if (this.input.value !== text) this.input.value = text;
    }
    if (this.output) setText(this.output, value === off ? say('off') : value);
  }
}

/** The panels of options: which fields are in each. `option` makes the getters and setters of an option. */
export function optionFields(change) {
  const option = (name, spec) => ({
    name, get: state => state.options[name], set: value => change(state => { state.options[name] = value; }, name),
        ...spec});
  const text = name => ({...option(name, {type: 'text'}), get: state => state.options[name] ?? '',
                         set: value => change(state => { state.options[name] = value.trim() || null; }, name)});
  return {
    score: [
      option('score', {type: 'choice', choices: ['scaled_dot', 'dot', 'general', 'additive']}),
      option('temperature', {type: 'range', min: 0.1, max: 5, step: 0.1}),
      option('softcap', {type: 'range', min: 0, max: 10, step: 0.5, off: 0}),
      option('bias', {type: 'choice', choices: ['none', 'alibi', 'alibi_symmetric', 'relative']}),
      option('sink', {type: 'number', step: 0.5, off: null}),
      option('dropout_p', {type: 'range', min: 0, max: 0.9, step: 0.05, off: 0}),
      text('score_mod'),
    ],
    sizes: [
      option('heads', {type: 'range', min: 1, max: 8, step: 1}),
      option('dim', {type: 'range', min: 1, max: 64, step: 1}),
      option('dk', {type: 'range', min: 1, max: 32, step: 1}),
      option('dv', {type: 'range', min: 1, max: 32, step: 1}),
      option('vocabulary', {type: 'number', min: 1, max: 200000, step: 1}),
      option('seed', {type: 'number', min: 0, step: 1}),
      option('positions', {type: 'choice', choices: ['none', 'sinusoidal', 'rotary']}),
    ],
    more: [
      option('output_projection', {type: 'check'}),
      option('learned_query', {type: 'check', shown: state => state.to === null, set: value => change(state => {
        Object.assign(state.options, {learned_query: value, query: null});  // the rows are others
      }, 'learned_query')}),
      option('gradients', {type: 'check'}),
      option('query', {type: 'choice', get: state => state.options.query ?? '',
        set: value => change(state => { state.options.query = value === '' ? null : +value; }, 'query'),
        choices: state => [['', say('choice_none')], ...(state.queries || []).map((token, at) =>
            [at, `${at} ${token}`])]}),
      {...text('weights'), get: state => state.options.weights === 'none' ? '' : state.options.weights,
       set: value => change(state => { state.options.weights = value.trim() || 'none'; }, 'weights')},
      option('cache', {type: 'choice', get: state => state.options.cache ?? '',
        set: value => change(state => { state.options.cache = value || null; }, 'cache'),
        choices: () => [['', say('choice_none')], ['same', say('choice_same')], ['int8', 'int8']]}),
      option('packed', {type: 'check'}),
    ],
  };
}
