// web/page/files_panel.js: files dropped onto the page: own matrices, or a small language model (a folder's files or a
// GGUF file) with its layers and heads.
import {make} from './elements.js';
import {say} from './words.js';
import {Field} from './fields.js';
import {readSafetensors} from './safetensors.js';

const MATRICES = ['w_query', 'w_key', 'w_value', 'embedding', 'w_output', 'query_vector', 'score_w', 'score_w_query',
                  'score_w_key'];

/** The GGUF file among the names of files: its parts in order; none if there is none. */
function ggufParts(names) {
  const parts = names.filter(each => /\.gguf$/i.test(each)).sort();
  const models = new Set(parts.map(each => each.replace(/-\d{5}-of-\d{5}\.gguf$/i, '')));
  if (models.size > 1) throw new Error(say('one_model', {names: parts.join(', ')}));
  return parts;
}

/** The panel of the files. */
export class FilesPanel {
  /** @param {object} page main.js: engine, ask, change, fail */
  constructor(page) {
    this.page = page;
    this.matrices = null;
    this.model = null;
    this.file = null;  // the name of a model's GGUF file
    this.taken = 0;  // how often the numbers came from elsewhere than before
    this.at = {layer: 0, model_head: 0};
    this.options = {prompt: 'The ', tokens: 60, temperature: 0.8, seed: 1};
    this.input = make('input', {type: 'file', multiple: true, id: 'files', on: {change: () => {
      const files = [...this.input.files];
      this.input.value = '';  // the same files may be chosen again: they may have changed
      this.take(files);
    }}});
    this.about = make('p', {'data-say': 'files_how'});
    this.label = make('label.choose', {for: 'files', 'data-say': 'choose_files'});
    this.said = make('p.small', {'aria-live': 'polite'});
    const number = (name, max) => new Field({name, type: 'number', min: 0, step: 1, get: () => this.at[name],
      set: value => this.#choose(name, Math.min(Math.max(0, Math.floor(value)), max() - 1))});
    this.fields = [number('layer', () => this.model.layers), number('model_head', () => this.model.heads)];
    const own = (name, type, spec) => new Field({name, type, get: () => this.options[name],
      set: value => { this.options[name] = value; }, ...spec});
    this.generation = [own('prompt', 'text'), own('new_tokens', 'number', {min: 1, max: 512,
                         get: () => this.options.tokens, set: value => { this.options.tokens = Math.floor(value); }}),
                       own('temperature', 'range', {min: 0, max: 2, step: 0.1})];
    this.run = make('button', {type: 'button', 'data-say': 'generate', on: {click: () => this.generate()}});
    this.output = make('output.generated', {'aria-live': 'polite'});
    this.forget = make('button', {type: 'button', 'data-say': 'forget', on: {click: () => this.clear()}});
    this.modelPart = make('div', {}, make('div.fields', {}, ...this.fields.map(field => field.element)),
      make('div.fields', {}, ...this.generation.map(field => field.element), this.run), this.output);
    this.element = make('div.filespanel', {}, this.about, this.input, this.label, this.said, this.modelPart,
        this.forget);
    this.update();
  }

  summary() {
    return this.model ? say('model') : this.matrices ? say('own_matrices') : '';
  }

  /** Where the numbers come from, in a sentence. */
  source({options: {seed}}) {
    if (this.model) return say('source_model', {layer: this.at.layer, head: this.at.model_head});
    if (!this.matrices) return say('source_random', {seed});
    return say('source_own', {seed, names: Object.keys(this.matrices).join(say('comma'))});
  }

  update() {
    this.modelPart.hidden = !this.model;
    this.forget.hidden = !this.model && !this.matrices;
    if (this.model) for (const field of [...this.fields, ...this.generation]) field.update({});
  }

  #choose(name, value) {
    this.at[name] = value;
    this.page.ask();
  }

  /** Takes files: safetensors with w_query are matrices, a GGUF file is a model, so is a folder with config.json. */
  async take(list) {
    const files = {};
    try {
      for (const file of list) files[file.name] = new Uint8Array(await file.arrayBuffer());
      const [gguf] = 'config.json' in files ? [] : ggufParts(Object.keys(files));
      if ('config.json' in files || gguf) {
        if (this.model) this.said.textContent = this.output.textContent = '';
        this.model = null;  // the engine lets go of the old one before it reads
        this.model = await this.page.engine.load(files);
        this.file = gguf ?? null;
        this.matrices = null;
        this.at = {layer: 0, model_head: 0};
        this.said.textContent = say('model_loaded', this.model);
      } else {
        const name = Object.keys(files).find(each => each.endsWith('.safetensors'));
        if (!name) throw new Error(say('no_such_files', {names: Object.keys(files).join(', ')}));
        const tensors = readSafetensors(files[name]), known = Object.entries(tensors).filter(([key]) =>
            MATRICES.includes(key));
        if (!known.length) throw new Error(say('no_matrices', {names: Object.keys(tensors).join(', ') || '–'}));
        this.matrices = Object.fromEntries(known);
        this.model = null;
        this.said.textContent = say('matrices_loaded', {names: known.map(([key, {shape}]) =>
            `${key} [${shape}]`).join(', ')});
      }
      this.page.fail('');
      ++this.taken;
    } catch (error) {
      this.update();
      this.page.fail(error.message);
      return;
    }
    await this.page.ask();
    this.update();
  }

  clear() {
    this.model = this.matrices = null;
    ++this.taken;
    this.said.textContent = this.output.textContent = '';
    this.page.ask();
    this.update();
  }

  /** Generates the next tokens. The engine writes them in one call, and the browser shows them when it is over. */
  async generate() {
    const started = performance.now();
    let count = 0;
    this.output.textContent = this.options.prompt;
    this.run.disabled = true;
    try {
      const text = await this.page.engine.generate({...this.options}, token => {
        this.output.textContent += token;
        ++count;
      });
      if (typeof text === 'string' && text) this.output.textContent = text.startsWith(this.options.prompt) ? text
        : this.options.prompt + text;
      const seconds = (performance.now() - started) / 1000;
      this.said.textContent = say('generated', {n: count || this.options.tokens,
                                                speed: Math.round((count || this.options.tokens) / seconds)});
    } catch (error) {
      this.page.fail(error.message);
    }
    this.run.disabled = false;
  }
}
