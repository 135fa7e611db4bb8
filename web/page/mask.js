// web/page/mask.js: a mask put together by clicks: its notation (the library's), and the pairs that it hides.

/** The parts of a mask; all of them together say who sees whom. */
export const noMask = () => ({causal: '', window: null, prefix: 0, keys: 0, documents: [], hide: [], show: [],
    text: ''});

const pair = text => text.split('.').map(Number);

/** Rows that see one key, [from, to) in runs, as a condition on the distance. */
function rows(from, to, key, align) {
  const left = to - 1 - key, right = key - from, end = align ? `, ${align})` : ')';
  const parts = [];
  if (left >= 0 && right >= 0) return `window(${left}, ${right}${end}`;
  parts.push(left >= 0 ? `window(${left}, -1${end}` : `~window(-1, ${-left - 1}${end}`);
  if (from > 0) parts.push(right >= 0 ? `window(-1, ${right}${end}` : `~window(${-right - 1}, -1${end}`);
  return parts.join(' & ');
}

/** The notation of a list of pairs [row, key]: one term a run of rows that see one key. */
function pairsText(pairs, align) {
  const byKey = new Map();
  for (const [row, key] of pairs) byKey.set(key, [...(byKey.get(key) || []), row]);
  const terms = [];
  for (const [key, list] of [...byKey].sort((a, b) => a[0] - b[0])) {
    const sorted = [...new Set(list)].sort((a, b) => a - b);
    for (let at = 0; at < sorted.length;) {
      let end = at + 1;
      while (end < sorted.length && sorted[end] === sorted[end - 1] + 1) ++end;
      terms.push(`prefix(${key + 1})${key ? ` & ~prefix(${key})` : ''} & ` +
                 rows(sorted[at], sorted[end - 1] + 1, key, align));
      at = end;
    }
  }
  return terms.join(' | ');
}

/** Which document each of `count` tokens is in, when a new one begins at each place of `starts`. */
export function documentIds(starts, count) {
  const begins = new Set(starts);
  let id = 0;
  return Array.from({length: count}, (_, at) => begins.has(at) && at > 0 ? ++id : id);
}

function documentPairs(starts, count) {
  const ids = documentIds(starts, count);
  return ids.flatMap((row, i) => ids.flatMap((key, j) => row === key ? [[i, j]] : []));
}

/** Whether the notation needs to know how many tokens there are. */
export const needsSize = mask => !mask.text && mask.documents.length > 0;

/**
 * The mask in the library's notation; empty when nothing is masked.
 * @param {object} mask as of noMask
 * @param {{tokens: number, cross: boolean}} size the number of keys, and whether the queries are not the keys
 */
export function maskText(mask, {tokens = 0, cross = false} = {}) {
  const aligned = cross ? 'top_left' : '';
  let all = [];
  if (mask.text.trim()) all.push(mask.text.trim());
  else {
    if (mask.causal) all.push(cross ? `causal(${mask.causal})` : 'causal');
    if (mask.window) {
      const align = cross ? `, ${mask.causal || 'top_left'}` : '';
      all.push(`window(${mask.window[0]}, ${mask.window[1]}${align})`);
    }
    if (mask.documents.length && !cross) all.push(pairsText(documentPairs(mask.documents, tokens), aligned));
    all = all.map(part => all.length > 1 && part.includes('|') ? `(${part})` : part);
    if (mask.prefix) all = [all.length ? `${all.join(' & ')} | prefix(${mask.prefix})` : `prefix(${mask.prefix})`];
    if (mask.keys) all.push(`prefix(${mask.keys})`);
  }
  if (mask.hide.length) all.push(`~(${pairsText(mask.hide.map(pair), aligned)})`);
  const last = mask.hide.length ? all.length - 1 : all.length;  // what is hidden has its brackets already
  let text = all.length > 1 ? all.map((part, at) => at < last && part.includes('|') ? `(${part})` : part).join(' & ')
    : all.join('');
  if (mask.show.length && text) text += ` | ${pairsText(mask.show.map(pair), aligned)}`;
  return text;
}

/** Whether the mask has parts that are clearer as tensors than as notation. */
export const hasTensors = mask => !mask.text && mask.documents.length > 0 || mask.hide.length + mask.show.length > 0;

/** A notation without spaces, its alignments written out, and the factors of each term in order. */
const plainForm = text => text.replace(/\s/g, '').replace(/\bcausal\b(?!\()/g, 'causal(top_left)')
  .replace(/\bwindow\((-?\d+),(-?\d+)\)/g, 'window($1,$2,top_left)')
  .split('|').map(term => term.split('&').sort().join('&')).join('|');

/**
 * The parts of a notation if they say the same, as by clicks; else the whole as text.
 * @param {string} text @param {{cross: boolean}} size as of maskText
 */
export function maskParts(text, size = {}) {
  const mask = readParts(text), same = text.trim() === 'all' || plainForm(maskText(mask, size)) === plainForm(text);
  return same ? mask : {...noMask(), text: text.trim()};
}

function readParts(text) {
  const mask = noMask(), found = /^(.*?)(?:\s*\|\s*prefix\((\d+)\))?$/.exec(text.trim());
  for (const part of found[1].split('&').map(each => each.trim()).filter(each => each && each !== 'all')) {
    const causal = /^causal(?:\((top_left|bottom_right)\))?$/.exec(part), prefix = /^prefix\((\d+)\)$/.exec(part);
    const window = /^window\((-?\d+),\s*(-?\d+)(?:,\s*(top_left|bottom_right))?\)$/.exec(part);
    if (causal && !mask.causal) mask.causal = causal[1] || 'top_left';
    else if (window && !mask.window) mask.window = [+window[1], +window[2]];
    else if (prefix && !mask.prefix && found[1].trim() === part) mask.prefix = +prefix[1];
    else return {...noMask(), text: text.trim()};
  }
  if (found[2]) mask.prefix = +found[2];
  return mask;
}

/**
 * The mask with a name of its own that shows the same pairs: causal, only the first keys, or a window; else null.
 * @param {(boolean|null)[][]} seen which keys each query sees; null: padding, which may be either
 */
export function namedMask(seen) {
  const R = seen.length, K = seen[0].length;
  const is = rule => seen.every((row, i) => row.every((now, j) => now === null || now === rule(i, j)));
  if (is(() => true)) return null;
  for (const [causal, shift] of [['top_left', 0], ['bottom_right', K - R]])
    if (is((i, j) => j <= i + shift)) return {...noMask(), causal};
  const pairs = seen.flatMap((row, i) => row.flatMap((now, j) => now ? [[i, j]] : []));
  const most = of => pairs.reduce((largest, pair) => Math.max(largest, of(pair)), -1), keys = most(([, j]) => j) + 1;
  if (pairs.length && is((i, j) => j < keys)) return {...noMask(), keys};
  const left = most(([i, j]) => i - j), right = most(([i, j]) => j - i);
  if (left < 0 || right < 0 || !is((i, j) => i - j <= left && j - i <= right)) return null;  // a limit < 0 is none
  return {...noMask(), window: [left === R - 1 ? -1 : left, right === K - 1 ? -1 : right]};
}

/** Hides or shows one pair: what the base says is undone by painting it back. */
export function paintPair(mask, row, key, hidden) {
  const name = `${row}.${key}`, without = list => list.filter(each => each !== name);
  const was = mask.hide.includes(name) || mask.show.includes(name);
  mask.hide = without(mask.hide);
  mask.show = without(mask.show);
  if (!was) (hidden ? mask.show : mask.hide).push(name);
}
