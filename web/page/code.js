// web/page/code.js: the call that the page shows, as C++, Python and a command line.
import {OPTIONS} from './state.js';
import {documentIds, hasTensors, maskText} from './mask.js';

const quoted = text => JSON.stringify(text);
const shell = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
const python = value => value instanceof Code ? value.py
  : value === null ? 'None' : value === true ? 'True' : value === false ? 'False'
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
               'cut_words', 'w_query', 'w_key', 'w_value', 'embedding', 'output_projection', 'w_output',
               'learned_query', 'query_vector', 'score_w_query', 'score_w_key', 'score_w', 'softcap', 'temperature',
               'bias', 'score_mod', 'sink', 'dropout_p', 'weights', 'packed', 'cache', 'query', 'gradients',
                   'language'];
const FLAGS = {score_mod: '--score-mod', dropout_p: '--dropout', weights: '--return-weights', tokens: '--tokens'};

function weightsCpp(text) {
  const [, name, given] = /^(\w+)(?:\((.*)\))?$/.exec(text.trim()) ?? [null, text, undefined];
  if (name === 'rows') return `attn::Weights::rows(attn::tensor<std::int64_t>({${given}}))`;
  return `attn::Weights::${name}${given === undefined ? '' : `(${given})`}`;
}

function cppValue(name, value) {
  if (value instanceof Code) return value.cpp;
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

function chosen(state, size, {matrices, words}) {
  const values = {};
  for (const [name, value] of Object.entries(state.options)) if (OPTIONS[name] !== value) values[name] = value;
  if (matrices.length) for (const name of ['dim', 'dk', 'dv']) delete values[name];  // the matrices have them
  for (const name of matrices) values[name] = new Code(`file.at(${quoted(name)})`, `file[${quoted(name)}]`);
  if (words) values.cut_words = new Code('[&](const std::string& text) { return words.at(text); }', 'words.get');
  const mask = maskText(state.mask, size);
  if (mask) values.mask = mask;
  if (state.language !== 'en') values.language = state.language;
  return values;
}

/** A value that is code: it has no flag of its own on the command line. */
class Code {
  constructor(cpp, py) { Object.assign(this, {cpp, py}); }
}

/** The call for a head of a model; Python has none. */
function modelCode({text, options, language}, {layer, head, file}) {
  const [first] = text, minus = first.startsWith('-'), fields = [`.layer = ${layer}`, `.head = ${head}`];
  const words = minus ? '' : ` ${shell(first)}`, from = file ?? 'FOLDER';
  const command = [`attn explain --model ${shell(from)}${words} --layer ${layer} --head ${head}`];
  if (options.gradients) command.push('--gradients');
  if (language !== 'en') command.push(`--lang ${language}`);
  if (minus) command.push(`-- ${shell(first)}`);
  if (options.gradients) fields.push('.gradients = true');
  if (language !== 'en') fields.push(`.language = ${cppValue('language', language)}`);
  const cpp = '#include <attn/attn.h>\n#include <iostream>\n\nint main() {\n' +
    `  const auto model = attn::LanguageModel::load(${quoted(from)});\n` +
    `  const auto tokenizer = attn::Tokenizer::load(${quoted(from)});\n` +
    `  const auto run = attn::explain_model(model, tokenizer, ${quoted(first)}, {${fields.join(', ')}});\n` +
    '  std::cout << attn::to_text(run);\n}\n';
  return {command: command.join(' '), python: '', cpp};
}

/** The words of each text, as a map. */
const wordsCpp = words => Object.entries(words).map(([text, list]) =>
  `      {${quoted(text)}, {${list.map(quoted).join(', ')}}}`).join(',\n');
const wordsPython = words => Object.entries(words).map(([text, list]) =>
  `    ${quoted(text)}: [${list.map(quoted).join(', ')}]`).join(',\n');

/**
 * The mask alone and the whole call.
 * @param {object} state
 * @param {{rows: number, keys: number, cross: boolean}} size how many tokens each side has
 * @param {{model?: object|null, matrices?: string[], words?: Object<string, string[]>|null}} from the layer, head and
 *        GGUF file (null: a folder) of a model; the names of own matrices; the words of each text where the library
 *        would cut otherwise
 * @returns {{command: string, python: string, cpp: string, mask: {command: string, python: string, cpp: string}}}
 */
export function callCode(state, size, {model = null, matrices = [], words: cut = null} = {}) {
  const counted = {...size, tokens: size.keys}, values = chosen(state, counted, {matrices, words: cut});
  const texts = state.text;
  const masks = {cpp: maskCalls(state.mask, size, true), python: maskCalls(state.mask, size, false)};
  const maskAlone = {command: values.mask ? `--mask ${shell(values.mask)}` : '', ...masks};
  if (model) return {...modelCode(state, model), mask: maskAlone};

  const words = texts.map(text => text.startsWith('-') ? null : shell(text));
  const command = ['attn explain'];
  if (state.batch) command.push('--batch');
  if (!words.includes(null)) command.push(...words);
  if (state.to !== null) command.push(`--to ${shell(state.to)}`);
  for (const name of ORDER) {
    if (!(name in values) || values[name] instanceof Code) continue;
    const flag = FLAGS[name] || `--${name === 'language' ? 'lang' : name.replaceAll('_', '-')}`, value = values[name];
    const glued = typeof value === 'number' && value < 0 || /^-/.test(String(value));
    command.push(value === true ? flag : `${flag}${glued ? '=' : ' '}${shell(String(value))}`);
  }
  if (matrices.length) command.push('--weights FILE');
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
  let py = tensors ? 'import attn\nimport numpy as np\n' : 'import attn\n';
  py += matrices.length ? 'from safetensors.numpy import load_file\n\nfile = load_file("FILE")\n' : '\n';
  if (cut) py += `words = {\n${wordsPython(cut)}}\n`;
  if (values.mask) py += `mask = ${masks.python}\n`;
  py += `print(attn.explain(${lines(pythonArguments)}))\n`;

  const cppFields = [];
  if (state.to !== null) cppFields.push(`.to = ${quoted(state.to)}`);
  for (const name of fields) cppFields.push(`.${name} = ${name === 'mask' ? 'mask' : cppValue(name, values[name])}`);
  const call = state.batch ? `attn::explain_batch({${texts.map(quoted).join(', ')}}`
      : `attn::explain(${quoted(texts[0])}`;
  let cpp = `#include <attn/attn.h>\n#include <iostream>\n${cut ? '#include <map>\n#include <string>\n' +
    '#include <vector>\n' : ''}\nint main() {\n`;
  if (matrices.length) cpp += '  const auto file = attn::load_safetensors("FILE");\n';
  if (cut) cpp += `  const std::map<std::string, std::vector<std::string>> words = {\n${wordsCpp(cut)}};\n`;
  if (values.mask) cpp += `  const attn::Mask mask = ${masks.cpp};\n`;
  cpp += `  const auto run = ${call}${cppFields.length ? `, {${lines(cppFields)}}` : ''});\n`;
  cpp += '  std::cout << attn::to_text(run);\n}\n';
  return {command: command.join(' '), python: py, cpp,
          mask: maskAlone};
}
