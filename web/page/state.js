// web/page/state.js: what the page shows, as one object; written into the address after # and read from it.
import {noMask, maskText, maskParts, needsSize} from './mask.js';

/** The options of an explanation and their defaults, under the names of ExplainOptions. */
export const OPTIONS = {
  score: 'scaled_dot', heads: 1, dim: 3, dk: 2, dv: 4, vocabulary: 50000, seed: 123, positions: 'none', tokens: 'auto',
  output_projection: false, learned_query: false, softcap: 0, temperature: 1, bias: 'none', score_mod: null,
      sink: null, dropout_p: 0, weights: 'none', packed: false, cache: null,
  query: null, gradients: false,
};
export const SENTENCE = {en: 'Life is short, eat dessert first', zh: '人生苦短，先吃甜点'};

/** A new state: the default sentence, no options. */
export function newState(language = 'en') {
  return {
    text: [SENTENCE[language]], to: null, batch: false, options: {...OPTIONS}, mask: noMask(), language,
    sentence: 0, head: 0, compare: '', before: '', shown: 'difference',
    off: {keys: [], weights: [], heads: []}, chosen: [], pin: null, pull: false, lesson: null,
  };
}

const encode = value => encodeURIComponent(value).replace(/%20/g, '+').replace(/%(2C|3A|28|29|7C|40|2F)/g, unescape);
const unescape = code => decodeURIComponent(code);
const decode = value => {
  try {
    return decodeURIComponent(value.replace(/\+/g, ' '));
  } catch {
    return value;  // a stray % is only a sign
  }
};
const whole = text => (text || '').split(',').filter(Boolean);
const numbersOf = text => whole(text).map(Number).filter(Number.isInteger);

/** The state as the part of an address after #: only what differs from the defaults. */
export function toHash(state) {
  const parts = [], add = (name, value) => parts.push(value === true ? name : `${name}=${encode(String(value))}`);
  const {mask, off} = state;
  if (state.text.length > 1 || state.batch || state.text[0] !== SENTENCE[state.language])
    for (const text of state.text) add('text', text);
  if (state.batch && state.text.length === 1) add('batch', true);
  if (state.to !== null) add('to', state.to);
  for (const [name, value] of Object.entries(OPTIONS))
    if (state.options[name] !== value) add(name, state.options[name]);
  if (mask.causal) add('causal', mask.causal === 'top_left' ? true : mask.causal);
  if (mask.window) add('window', mask.window.join(','));
  if (mask.prefix) add('prefix', mask.prefix);
  if (mask.keys) add('keys', mask.keys);
  for (const name of ['documents', 'hide', 'show']) if (mask[name].length) add(name, mask[name].join(','));
  if (mask.text) add('mask', mask.text);
  if (state.sentence) add('sentence', state.sentence);
  if (state.head) add('head', state.head);
  if (state.compare) add('compare', state.compare);
  if (state.compare && state.shown !== 'difference') add('shown', state.shown);
  if (state.before) add('before', state.before);
  for (const name of ['keys', 'weights', 'heads']) if (off[name].length) add(`off-${name}`, off[name].join(','));
  if (state.chosen.length) add('chosen', state.chosen.join(','));
  if (state.pin) add('pin', [state.pin.step, state.pin.row, state.pin.column].join(','));
  if (state.pull) add('pull', true);
  if (state.lesson) add('lesson', state.lesson);
  if (state.language !== 'en') add('language', state.language);
  return parts.join('&');
}

/** Whether the queries are not the keys: a second text, or one learned query. A mask then needs an alignment. */
export const isCross = state => state.to !== null || state.options.learned_query;

/** Turns off what another part of the state rules out: with a second text the tokens of the first are the queries. */
export function consistent(state) {
  if (state.to !== null) state.options.learned_query = false;
  return state;
}

function option(name, text) {
  const value = OPTIONS[name];
  if (typeof value !== 'boolean' && !text.trim()) return value;
  if (typeof value === 'boolean') return text !== 'false';
  if (typeof value === 'number' || ['sink', 'query'].includes(name)) return Number.isFinite(+text) ? +text : value;
  return text;
}

/** The state that an address says; names that are not known are left out. */
export function fromHash(hash, language = 'en') {
  const fields = hash.replace(/^#/, '').split('&').filter(Boolean).map(part => {
    const at = part.indexOf('=');
    return at < 0 ? [decode(part), ''] : [decode(part.slice(0, at)), decode(part.slice(at + 1))];
  });
  const all = Object.fromEntries(fields);
  const state = newState(all.language === 'zh' || all.language === 'en' ? all.language : language);
  const texts = fields.filter(([name]) => name === 'text').map(([, value]) => value);
  if (texts.length) state.text = texts;
  state.batch = texts.length > 1 || 'batch' in all;
  if ('to' in all) state.to = all.to;
  for (const name of Object.keys(OPTIONS)) if (name in all) state.options[name] = option(name, all[name]);
  const {mask} = state, window = /^(-?\d+),(-?\d+)$/.exec(all.window || '');
  if ('causal' in all) mask.causal = all.causal === 'bottom_right' ? 'bottom_right' : 'top_left';
  if (window) mask.window = [+window[1], +window[2]];
  for (const name of ['prefix', 'keys']) if (+all[name] > 0) mask[name] = Math.floor(+all[name]);
  mask.documents = numbersOf(all.documents);
  for (const name of ['hide', 'show']) mask[name] = whole(all[name]).filter(each => /^\d+\.\d+$/.test(each));
  mask.text = all.mask || '';
  for (const name of ['sentence', 'head']) state[name] = Math.max(0, Math.floor(+all[name] || 0));
  if (/^(before|head:\d+)$/.test(all.compare || '')) state.compare = all.compare;
  if (['before', 'after', 'both'].includes(all.shown)) state.shown = all.shown;
  state.before = all.before || '';
  state.off = {keys: numbersOf(all['off-keys']), heads: numbersOf(all['off-heads']),
               weights: whole(all['off-weights']).filter(each => /^\d+\.\d+$/.test(each))};
  state.chosen = numbersOf(all.chosen);
  const pin = whole(all.pin);
  if (pin.length === 3) state.pin = {step: pin[0], row: +pin[1], column: +pin[2]};
  state.pull = 'pull' in all && state.pin !== null;
  state.lesson = all.lesson || null;
  return consistent(state);
}

/** The state that `attn explain --html` wrote into the page: {"text", "to", "options", "lesson"}. */
export function fromStart(start, language) {
  const options = start.options || {}, state = newState(options.language || language);
  if (start.text !== undefined) state.text = [start.text].flat();
  state.batch = Array.isArray(start.text);
  state.to = start.to ?? options.to ?? null;
  for (const name of Object.keys(OPTIONS)) if (name in options) state.options[name] = options[name];
  state.options.score_mod ||= null;
  if (options.mask) state.mask = maskParts(options.mask, {cross: isCross(state)});
  state.lesson = start.lesson || null;
  return consistent(state);
}

/** Whether the request can only be made once the number of tokens is known. */
export const needsTokens = state => needsSize(state.mask);

/** What the engine is asked: only the options that differ from the defaults. */
export function toRequest(state, {tokens, cut, matrices} = {}) {
  const options = {};
  for (const [name, value] of Object.entries(OPTIONS))
    if (state.options[name] !== value) options[name] = state.options[name];
  if (matrices) for (const name of ['dim', 'dk', 'dv']) delete options[name];
  const mask = maskText(state.mask, {tokens, cross: isCross(state)});
  if (mask) options.mask = mask;
  options.language = state.language;
  const request = {text: state.batch ? state.text : state.text[0], to: state.to, options};
  if (cut) request.cut = cut;
  if (matrices) request.matrices = matrices;
  return request;
}
