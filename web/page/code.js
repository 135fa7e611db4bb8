// web/page/code.js: the call that the page shows, as C++, Python and a command line.
import {OPTIONS} from './state.js';
import {documentIds, hasTensors, maskText} from './mask.js';

const quoted = text => JSON.stringify(text);
const shell = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
const python = value => value === null ? 'None' : value === true ? 'True' : value === false ? 'False'
  : JSON.stringify(value);
const real = value => Number.isInteger(value) ? `${value}.0` : String(value);

const ENUMS = {
  score: {scaled_dot: 'Score::Kind::scaled_dot', dot: 'Score::Kind::dot', general: 'Score::Kind::general',
          additive: 'Score::Kind::additive'},
  positions: {sinusoidal: 'Positions::sinusoidal', rotary: 'Positions::rotary'},
  tokens: {words: 'text::Tokens::words', characters: 'text::Tokens::characters'},
  bias: {alibi: 'ExplainBias::alibi', relative: 'ExplainBias::relative',
         alibi_symmetric: 'ExplainBias::alibi_symmetric'},
  cache: {same: 'KvStorage::same', int8: 'KvStorage::int8'},
};
const ORDER = ['score', 'mask', 'heads', 'dim', 'dk', 'dv', 'vocabulary', 'seed', 'positions', 'tokens',
               'output_projection', 'learned_query', 'softcap', 'temperature',
               'bias', 'score_mod', 'sink', 'dropout_p', 'weights', 'packed', 'cache', 'query', 'gradients',
                   'language'];
const FLAGS = {score_mod: '--score-mod', dropout_p: '--dropout', weights: '--return-weights', tokens: '--tokens'};

function weightsCpp(text) {
  const [, name, given] = /^(\w+)(?:\((.*)\))?$/.exec(text.trim()) ?? [null, text, undefined];
  if (name === 'rows') return `attn::Weights::rows(attn::tensor<std::int64_t>({${given}}))`;
  return `attn::Weights::${name}${given === undefined ? '' : `(${given})`}`;
}

function cppValue(name, value) {
  if (ENUMS[name]) return `attn::${ENUMS[name][value] || value}`;
  if (name === 'score_mod') return `attn::ScoreExpression::parse(${quoted(value)})`;
  if (name === 'weights') return weightsCpp(value);
  if (name === 'language') return `attn::Language::${value}`;
  return ['softcap', 'temperature', 'sink', 'dropout_p'].includes(name) ? real(value) : String(value);
}

/** The mask's parts as calls: C++ with `::`, Python with `.`; pairs without a notation of their own as a matrix. */
function maskCalls(mask, size, cpp) {
  const made = cpp ? 'attn::Mask::' : 'attn.Mask.', {rows, keys: count, cross} = size;
  const align = name => cpp ? `attn::Align::${name}` : quoted(name);
  if (mask.text) {
    const parsed = `${made}parse(${quoted(mask.text)})`;
    return paintedOnto(parsed, mask, size, cpp);
  }
  let parts = [];
  if (mask.causal) parts.push(`${made}causal(${cross ? align(mask.causal) : ''})`);
  if (mask.window) {
    parts.push(`${made}window(${mask.window.join(', ')}${cross ? `, ${align(mask.causal || 'top_left')}` : ''})`);
  }
  if (mask.documents.length && !cross) {
    const ids = documentIds(mask.documents, rows).join(', ');
    parts.push(cpp ? `${made}documents(attn::tensor<std::int64_t>({${ids}}, {${rows}}))`
                   : `${made}documents(np.array([${ids}]))`);
  }
  let text = parts.join(' & ');
  if (mask.prefix) text = text ? `${text} | ${made}prefix(${mask.prefix})` : `${made}prefix(${mask.prefix})`;
  if (mask.keys) {
    const keys = `${made}prefix(${mask.keys})`;
    text = text ? `${text.includes('|') ? `(${text})` : text} & ${keys}` : keys;
  }
  return paintedOnto(text, mask, {rows, keys: count}, cpp);
}

/** `allowed`, a matrix of bool for the pairs that are painted. */
function paintedOnto(text, mask, {rows, keys}, cpp) {
  const matrix = list => {
    const set = new Set(list);
    const lines = Array.from({length: rows}, (_, i) => Array.from({length: keys}, (_, j) => set.has(`${i}.${j}`)));
    return cpp ? `attn::tensor<bool>({\n    ${lines.map(row => row.join(', ')).join(',\n    ')}}, {${rows}, ${keys}})`
               : `np.array([\n    ${lines.map(row => `[${row.map(Number).join(', ')}]`).join(',\n    ')}], dtype=bool)`;
  };
  const made = cpp ? 'attn::Mask::' : 'attn.Mask.';
  if (mask.hide.length) {
    const block = `${made}block(${matrix(mask.hide)})`;
    text = text ? `${text.includes('|') ? `(${text})` : text} & ${block}` : block;
  }
  if (mask.show.length && text) text += ` | ${made}attend(${matrix(mask.show)})`;
  return text;
}

function chosen(state, size) {
  const values = {};
  for (const [name, value] of Object.entries(state.options)) if (OPTIONS[name] !== value) values[name] = value;
  const mask = maskText(state.mask, size);
  if (mask) values.mask = mask;
  if (state.language !== 'en') values.language = state.language;
  return values;
}

/**
 * The mask alone and the whole call.
 * @param {object} state
 * @param {{rows: number, keys: number, cross: boolean}} size how many tokens each side has
 * @returns {{command: string, python: string, cpp: string, mask: {command: string, python: string, cpp: string}}}
 */
export function callCode(state, size) {
  const counted = {...size, tokens: size.keys}, values = chosen(state, counted), texts = state.text;
  const masks = {cpp: maskCalls(state.mask, size, true), python: maskCalls(state.mask, size, false)};

  const words = texts.map(text => text.startsWith('-') ? null : shell(text));
  const command = ['attn explain'];
  if (state.batch) command.push('--batch');
  if (!words.includes(null)) command.push(...words);
  if (state.to !== null) command.push(`--to ${shell(state.to)}`);
  for (const name of ORDER) {
    if (!(name in values)) continue;
    const flag = FLAGS[name] || `--${name === 'language' ? 'lang' : name.replaceAll('_', '-')}`, value = values[name];
    const glued = typeof value === 'number' && value < 0 || /^-/.test(String(value));
    command.push(value === true ? flag : `${flag}${glued ? '=' : ' '}${shell(String(value))}`);
  }
  if (words.includes(null)) command.push('--', ...texts.map(shell));

  const fields = ORDER.filter(name => name in values);
  const pythonArguments = [state.batch ? python(texts) : quoted(texts[0])];
  if (state.to !== null) pythonArguments.push(`to=${quoted(state.to)}`);
  for (const name of fields) {
    pythonArguments.push(name === 'mask' ? 'mask=mask' : `${name}=${python(values[name])}`);
  }
  const lines = list => list.length > 1 && list.join(', ').length > 60 ? `\n    ${list.join(',\n    ')}`
      : list.join(', ');
  const tensors = hasTensors(state.mask) && values.mask;
  let py = tensors ? 'import attn\nimport numpy as np\n\n' : 'import attn\n\n';
  if (values.mask) py += `mask = ${masks.python}\n`;
  py += `print(attn.explain(${lines(pythonArguments)}))\n`;

  const cppFields = [];
  if (state.to !== null) cppFields.push(`.to = ${quoted(state.to)}`);
  for (const name of fields) cppFields.push(`.${name} = ${name === 'mask' ? 'mask' : cppValue(name, values[name])}`);
  const call = state.batch ? `attn::explain_batch({${texts.map(quoted).join(', ')}}`
      : `attn::explain(${quoted(texts[0])}`;
  let cpp = '#include <attn/attn.h>\n#include <iostream>\n\nint main() {\n';
  if (values.mask) cpp += `  const attn::Mask mask = ${masks.cpp};\n`;
  cpp += `  const auto run = ${call}${cppFields.length ? `, {${lines(cppFields)}}` : ''});\n`;
  cpp += '  std::cout << attn::to_text(run);\n}\n';
  return {command: command.join(' '), python: py, cpp,
          mask: {command: values.mask ? `--mask ${shell(values.mask)}` : '', ...masks}};
}
