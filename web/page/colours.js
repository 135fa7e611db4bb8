// web/page/colours.js: the colours of the numbers, light and dark: two hues for the sign, a ramp for weights; text on
// each of them has a contrast of at least 4.5.

export const SIGNED_LEVELS = 14, WEIGHT_LEVELS = 24;

const hex = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
const RAMPS = {
  light: {none: '#fdfcfa', plus: ['#eaf1f8', '#9cc3e4', '#3f83bd', '#164a7d'],
          minus: ['#fbefe3', '#f0bd8b', '#d07a2b', '#8a4208'],
          weight: ['#f3f4ef', '#cfe3da', '#8cc3b9', '#3f8f92', '#17586b', '#0a3145'], dark: '#1c1f23',
          masked: '#e4e2dc', soft: '#4d535c'},
  dark: {none: '#1d2024', plus: ['#202a35', '#274c70', '#3f83bd', '#a9d3f5'],
         minus: ['#322721', '#6b421c', '#c0701f', '#f7c48c'],
         weight: ['#21272a', '#1f4249', '#236b74', '#3d9d98', '#8fd0b5', '#eaf3c8'], dark: '#101215',
         masked: '#3a3d44', soft: '#b9bec6'},
};

function mix(stops, at) {
  const place = Math.min(Math.max(at, 0), 1) * (stops.length - 1), left = Math.min(Math.floor(place), stops.length - 2);
  const a = hex(stops[left]), b = hex(stops[left + 1]);
  return a.map((value, n) => Math.round(value + (b[n] - value) * (place - left)));
}
function luminance(rgb) {
  const linear = rgb.map(value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
const css = rgb => `rgb(${rgb.join(' ')})`;
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

/** The soft dark text where it is dark enough, else black or white. */
function entry(rgb, ramp) {
  const light = luminance(rgb), soft = contrast(light, luminance(hex(ramp.dark))) >= 4.6;
  return {rgb, ground: css(rgb), ink: soft ? ramp.dark : light > 0.179 ? '#000000' : '#ffffff'};
}

function palette(theme) {
  const ramp = RAMPS[theme], all = {n: {rgb: hex(ramp.none), ground: ramp.none, ink: theme === 'light' ? ramp.dark
      : '#e8eaed'}};
  all.hid = {rgb: hex(ramp.masked), ground: ramp.masked, ink: ramp.soft};  // masked, whatever masks it
  for (let level = 0; level < SIGNED_LEVELS; ++level) {
    const at = level / (SIGNED_LEVELS - 1);
    all[`p${level}`] = entry(mix(ramp.plus, at), ramp);
    all[`m${level}`] = entry(mix(ramp.minus, at), ramp);
  }
  for (let level = 0; level < WEIGHT_LEVELS; ++level)
    all[`w${level}`] = entry(mix(ramp.weight, level / (WEIGHT_LEVELS - 1)), ramp);
  return all;
}

/** {light, dark}: by class of a cell, its ground and the colour of its text. */
export const PALETTES = {light: palette('light'), dark: palette('dark')};

/** The class of a number among numbers of at most `largest` in magnitude: m13 to m0, n, p0 to p13. */
export function signedClass(value, largest) {
  if (value === null || !(largest > 0) || value === 0 || Number.isNaN(value)) return 'n';
  const level = Math.min(Math.abs(value) / largest, 1) ** 0.75 * (SIGNED_LEVELS - 1);
  return (value < 0 ? 'm' : 'p') + Math.round(level);
}

/** The class of a weight among `keys` keys: the scale of the terminal, w0 to w23; an equal share is a fifth of it. */
export function weightClass(value, keys) {
  if (value === null || !(value > 0)) return 'n';
  const heat = keys < 2 ? Math.min(value, 1) : 1 + 0.8 * Math.log(value) / Math.log(keys);
  return `w${Math.round(Math.min(Math.max(heat, 0), 1) * (WEIGHT_LEVELS - 1))}`;
}

/** The rules for all classes, both themes, as a style sheet. */
export function paletteRules() {
  const rules = [];
  for (const [theme, colours] of Object.entries(PALETTES))
    for (const [name, {ground, ink}] of Object.entries(colours))
      rules.push(`[data-theme=${theme}] td.${name}{background-color:${ground};color:${ink}}`);
  return rules.join('\n');
}
