// web/page/main.js: the page: the state, the call of the engine, the drawing; everything else hangs on it.
import {Engine} from '../engine.js';
import {Explanation} from './explanation.js';
import {Display} from './display.js';
import {StepsColumn} from './steps.js';
import {Inspector} from './inspector.js';
import {Controls} from './controls.js';
import {TextCard} from './text_card.js';
import {FilesPanel} from './files_panel.js';
import {LessonPlayer} from './lesson_player.js';
import {consistent, fromHash, fromStart, isCross, toHash} from './state.js';
import {Questions} from './questions.js';
import {Comparison, bareHash} from './comparison.js';
import {Painting} from './painting.js';
import {callCode} from './code.js';
import {paletteRules} from './colours.js';
import {pictureOf} from './picture.js';
import {byId, make, saveFile, setText} from './elements.js';
import {trace} from './trace.js';
import {missingWords, say, sayAll, sayError, setLanguage} from './words.js';

const MOST_TOKENS = 256;  // of a text on the page: above it the numbers take longer than one waits

class Page {
  constructor() {
    this.errors = [];
    this.timings = {};
    this.history = [];
    this.comparison = new Comparison(this);
    this.painting = new Painting(this);
    this.refused = '';  // why the newest state gave no numbers
    this.runs = 0;
    addEventListener('error', event => this.errors.push(event.message));
    addEventListener('unhandledrejection', event => this.errors.push(String(event.reason?.message ?? event.reason)));
    document.head.append(make('style', {text: paletteRules()}));
    for (const name of ['change', 'redraw']) this[name] = this[name].bind(this);
    this.state = this.firstState();
    setLanguage(this.state.language);
    this.theme(this.remembered('theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
    this.filesPanel = new FilesPanel(this);
    this.questions = new Questions(this);
    this.texts = new TextCard(this);
    this.controls = new Controls(this);
    this.lesson = new LessonPlayer(this);
    this.steps = new StepsColumn(byId('steps'), {
      point: place => this.point(place), pin: place => this.pin(place), painting: () => this.painting.on,
      paint: (...at) => this.painting.paint(...at), head: head => this.redraw(state =>
          { state.head = head; }),
      choose: (at, keys) => keys && this.redraw(({chosen}) => {
        if (chosen.includes(at)) chosen.splice(chosen.indexOf(at), 1);
        else chosen.push(at);
      }),
    });
    this.inspector = new Inspector(byId('inspector'), {
      go: place => this.pin(place, true), back: () => this.back(), unpin: () => this.unpin(),
      showAll: () => this.inspect(this.place, true), pull: () => this.redraw(state => { state.pull = !state.pull; }),
      switchOff: (kind, which) => this.redraw(({off}) => {
        if (off[kind].includes(which)) off[kind].splice(off[kind].indexOf(which), 1);
        else off[kind].push(which);
      }),
    });
    this.listen();
    this.words();
    this.inspector.empty();
  }

  firstState() {
    const language = navigator.language?.startsWith('zh') ? 'zh' : 'en';
    let start = {};
    try {
      start = JSON.parse(byId('attn-start')?.textContent || '{}');
    } catch (error) {
      this.errors.push(`attn-start: ${error.message}`);
    }
    this.cut = start.cut;
    return location.hash.length > 1 ? fromHash(location.hash, language) : fromStart(start, language);
  }

  listen() {
    addEventListener('hashchange', () => {
      if (location.hash.slice(1) === toHash(this.state)) return;
      this.state = fromHash(location.hash, this.state.language);
      this.history = [];
      this.words();
      this.ask();
    });
    addEventListener('keydown', event => {
      if (event.key === 'Escape' && this.state.pin) this.unpin();
      if (event.key === 'Backspace' && this.history.length && !event.target.closest('input, select')) {
        event.preventDefault();
        this.back();
      }
    });
    byId('theme').addEventListener('click', () => {
      this.theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    });
    byId('language').addEventListener('click', () => this.change(state => {
      state.language = state.language === 'en' ? 'zh' : 'en';
    }, 'language'));
    byId('explore').addEventListener('click', () => this.lesson.leave());
    byId('lessons').addEventListener('click', () => this.lesson.list());
    addEventListener('dragover', event => event.preventDefault());
    addEventListener('drop', event => {
      event.preventDefault();
      if (event.dataTransfer?.files.length) {
        if (this.controls.open !== 'files') this.controls.toggle('files');
        this.filesPanel.take(event.dataTransfer.files);
      }
    });
    byId('skip').addEventListener('click', () => byId('steps').focus());
    addEventListener('resize', () => this.steps.repaint());
  }

  remembered(name, value) {
    try {
      if (value !== undefined) localStorage.setItem(`attn-${name}`, value);
      return localStorage.getItem(`attn-${name}`);
    } catch {
      return null;  // a page from disk may have no storage
    }
  }

  theme(name) {
    const known = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = name;
    if (known) this.remembered('theme', name);
    this.steps?.repaint();
  }

  words() {
    setLanguage(this.state.language);
    sayAll();
    document.title = say('title');
  }

  /** Changes the state and asks the engine again. */
  change(run, what) {
    const before = bareHash(this.state);
    const texts = JSON.stringify([this.state.text, this.state.options.tokens]);
    run(this.state);
    consistent(this.state);
    if (texts !== JSON.stringify([this.state.text, this.state.options.tokens])) this.textChanged = true;
    if (before === bareHash(this.state)) return;
    this.comparison.changed(what, before);
    if (what === 'language') this.words();
    this.ask();
  }

  /** Changes only how the numbers are shown. */
  redraw(run) {
    run(this.state);
    this.draw();
  }

  /** Asks the engine; while it is busy the newest question waits. */
  ask() {
    this.queue = (this.waiting ? this.queue : (this.queue ?? Promise.resolve()).then(() => {
      this.waiting = false;
      this.running = true;
      return this.run().finally(() => { this.running = false; });
    }));
    this.waiting = true;
    return this.queue;
  }

  /** After a change of the text: a query that it no longer has is not worked out. */
  async keepQuery() {
    const {options} = this.state, {query} = options;
    if (this.textChanged && query !== null && !options.learned_query && !this.filesPanel.model) {
      const count = (await this.questions.textAlone(this.state)).tokens(0).length;
      if (query >= count || query < -count) options.query = null;
    }
    this.textChanged = false;
  }

  async run() {
    const started = performance.now(), {state} = this;
    try {
      if (!this.engine) return;
      if (state.text.some(text => text.length > 40 * MOST_TOKENS)) throw new Error(say('too_long', {n: MOST_TOKENS}));
      await this.keepQuery();
      const text = await this.questions.explain(state);
      const explained = performance.now();
      if (text !== this.text) this.explanation = new Explanation(text);
      this.text = text;
      await this.comparison.read();
      const read = performance.now();
      this.refused = '';
      this.fail('');
      this.draw();
      const drawn = performance.now();
      // the first result counts from when the browser began to load the page
      this.timings = {explain: explained - started, read: read - explained, draw: drawn - read, own: drawn - explained,
                      first: this.timings.first ?? drawn};
      ++this.runs;
    } catch (error) {
      this.refused = say('not_copied', {why: sayError(error.message)});
      this.fail(error.message);
      ++this.runs;
    }
  }

  fail(message) {
    byId('error').textContent = sayError(message);
    byId('error').hidden = !message;
    byId('steps').classList.toggle('old', Boolean(message));
    if (message) this.controls.update(this.state);
    if (message) this.texts.update(this.state);
  }

  draw() {
    const {state, explanation} = this;
    if (!explanation) return;
    state.headCount = explanation.heads;
    state.tokens = explanation.tokens(Math.min(state.sentence, explanation.batch - 1), false);
    const learned = explanation.step('learned_query');
    state.queries = learned ? explanation.rowLabels(learned, 0) : state.tokens;
    this.painting.keepPlace(() => {
      this.display = new Display(explanation, state, this.comparison.reference);
      this.texts.update(state);
      this.controls.update(state);
      this.lesson.update(state);
      setText(byId('source'), this.filesPanel.source(state));
      this.steps.show(this.display, this.lesson.view());
    });
    sayAll(byId('content'));
    if (state.pin && explanation.step(state.pin.step)) this.inspect(state.pin);
    else if (this.place && explanation.step(this.place.step)) this.inspect(this.place);
    else this.example();
    this.writeHash();
  }

  /** With nothing pointed at: the largest weight is taken apart. */
  example() {
    const step = this.explanation.steps.find(each => each.kind === 'weights'), best = {value: -1, row: 0, column: 0};
    if (!step || !this.lesson.answered() || !matchMedia('(min-width: 1051px)').matches) {
      this.inspector.empty();
      return this.steps.mark(null);
    }
    this.display.values(step).forEach((row, i) => row.forEach((value, j) => {
      if (value > best.value && value < 1) Object.assign(best, {value, row: i, column: j});
    }));
    this.inspect({step: step.name, row: best.row, column: best.column});
    this.place = null;
    this.inspector.hint();
  }

  writeHash() {
    const hash = toHash(this.state);
    clearTimeout(this.hashTimer);
    this.hashTimer = setTimeout(() => {
      if (location.hash.slice(1) !== hash) history.replaceState(null, '', `#${hash}`);
    }, 150);
  }

  inspect(place, all = false) {
    this.place = place;
    const made = this.inspector.show(this.display, place, {pinned: Boolean(this.state.pin), history: this.history,
        all});
    this.steps.mark(place, made);
    byId('inspector').classList.toggle('pinned', Boolean(this.state.pin));
  }

  point(place) {
    if (this.state.pin || !this.display) return;
    if (place) this.inspect(place);
  }

  pin(place, step = false) {
    const {state} = this;
    if (step && place.head !== undefined && this.explanation.step(place.step).heads > 1) state.head = place.head;
    if (step && state.pin) this.history.push(state.pin);
    else this.history = [];
    if (!step && state.pin && ['step', 'row', 'column'].every(name =>
        state.pin[name] === place[name])) return this.unpin();
    state.pin = {step: place.step, row: place.row, column: place.column};
    state.pull = false;
    this.draw();
    if (step) this.steps.reveal(place);
  }

  back() {
    this.state.pin = this.history.pop();
    this.draw();
    this.steps.reveal(this.state.pin);
  }

  unpin() {
    this.history = [];
    this.state.pin = null;
    this.state.pull = false;
    this.draw();
  }

  /** How many queries and keys there are, as maskText and callCode want it. */
  size() {
    const {explanation, state} = this;
    const rows = state.options.learned_query ? 1 : explanation?.tokens(0).length ?? 0;
    return {rows, keys: explanation?.tokens(0, true).length ?? 0, cross: isCross(state)};
  }

  code() {
    const {explanation, state, filesPanel} = this, size = this.size();
    const matrices = Object.keys(filesPanel.matrices || {}), {at} = filesPanel;
    const words = this.questions.wordsOf(state, explanation);
    const model = filesPanel.model && {layer: at.layer, head: at.model_head, file: filesPanel.file};
    return callCode(state, size, {model, matrices, words});
  }

  saveView() {
    saveFile('attention.svg', this.picture(), 'image/svg+xml');
  }

  picture() {
    return pictureOf(this.display, this.steps);
  }

  async saveSvg() {
    saveFile('explanation.svg', await this.engine.svg(await this.questions.request(this.state)), 'image/svg+xml');
  }

  saveJson() {
    saveFile('explanation.json', this.text, 'application/json');
  }

  async copyLink(button) {
    const link = `${location.href.split('#')[0]}#${toHash(this.state)}`;
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = say('copied');
    } catch {
      button.textContent = link;
    }
  }

  /** What the tests read. */
  report() {
    const {headCount, tokens, queries, ...state} = this.state;
    const block = name => this.steps.viewOf(name);
    return {
      ready: Boolean(this.text), runs: this.runs, busy: this.waiting || this.running, json: this.text, state,
      hash: toHash(this.state), errors: this.errors, failed: byId('error').textContent, timings: this.timings,
      inspected: this.inspector.place, made: this.inspector.made, code: this.display && this.code(),
      shown: name => block(name)?.data?.values, mode: name => this.display.mode(this.explanation.step(name)),
      centre: (name, row, column) => block(name).centre(row, column), lesson: this.lesson.report(),
    };
  }
}

const page = new Page();
window.attn = {report: () => page.report(), trace: place => trace(page.explanation, place), missingWords, page};
Engine.open().then(engine => {
  page.engine = engine;
  byId('version').textContent = engine.version ? `attn ${engine.version}` : 'attn';
  return page.lesson.start() || page.ask();
}).catch(error => page.fail(error.message));
