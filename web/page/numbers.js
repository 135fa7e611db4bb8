// web/page/numbers.js: numbers as the page writes them.

/** A number with `digits` decimals and a true minus; masked: a dot. */
export function short(value, digits = 4) {
  if (value === null || value === undefined) return '·';
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value < 0 ? '−∞' : '∞';
  const text = Math.abs(value) >= 1e5 ? value.toExponential(digits > 2 ? 2 : 0) : value.toFixed(digits);
  return text.charCodeAt(0) === 45 ? '−' + text.slice(1) : text;
}

/** A weight without the 0 before the point where space is scarce. */
export const weight = (value, digits) => {
  const text = short(value, digits);
  return digits < 3 && text.startsWith('0.') ? text.slice(1) : text;
};

/** All the digits that a 32-bit number has. */
export function full(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return short(value);
  const text = String(+value.toPrecision(9));
  return text.startsWith('-') ? '−' + text.slice(1) : text;
}
