// web/page/picture.js: what is on screen as an SVG drawing: the steps in order, with the numbers and colours of the
// page. Each text is whole: columns are as wide as their labels. What is wider than a page begins a new line.
import {PALETTES} from './colours.js';
import {titleOf} from './steps.js';
import {modeText} from './display.js';

const ROW = 20, GAP = 28, WIDEST = 1240;
const FONT = 'system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';
const BOLD = 1.12;  // how much wider than plain text
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;',
    '"': '&quot;'})[c]);
const wide = /[\u1100-\u11ff\u2e80-\uffdc]|[\ud800-\udbff]/, broad = /[mwMW@%—→−·√∞⊘]/;
const width = text => [...String(text)].reduce((sum, c) => sum + (wide.test(c) ? 13 : broad.test(c) ? 11.5 : 7.6), 0);

/** Texts as elements: {text, x, y, fill, anchor, bold}. */
const written = ({text, x, y, fill, anchor = 'start', bold = false}) =>
  `<text x="${x}" y="${y}" text-anchor="${anchor}"${bold ? ' font-weight="600"' : ''}` +
  `${fill ? ` fill="${fill}"` : ''}>${escape(text)}</text>`;

/** A matrix below its caption: title and formula, and in a second line how it is shown. */
function matrix(data, colours, x, y, {title, formula, how}) {
  const out = [written({text: title, x, y: y + 12, bold: true})], beside = x + width(title) * BOLD + 10;
  if (formula) out.push(written({text: formula, x: beside, y: y + 12, fill: colours.soft}));
  if (how) out.push(written({text: how, x, y: y + 12 + ROW, fill: colours.soft}));
  const top = y + ROW * (how ? 2 : 1), labels = Math.max(...data.rows.map(width), 10) + 10;
  const texts = data.values.map((row, i) => row.map((value, j) => data.textOf(value, i, j)));
  const column = Math.max(data.digits >= 4 ? 54 : 42, ...[data.columns, ...texts].map(row =>
    Math.max(...row.map(width)) + 12));
  data.columns.forEach((text, j) => out.push(written({text, x: x + labels + (j + 1) * column - 6, y: top + 14,
                                                      anchor: 'end', fill: colours.soft})));
  data.values.forEach((row, i) => {
    const line = top + ROW * (i + 1);
    out.push(written({text: data.rows[i], x, y: line + 14}));
    row.forEach((value, j) => {
      const colour = colours[data.classOf(value, i, j)], left = x + labels + j * column, middle = value === null;
      if (colour)
        out.push(`<rect x="${left}" y="${line}" width="${column - 1}" height="${ROW - 1}" fill="${colour.ground}"/>`);
      out.push(written({text: texts[i][j], x: left + (middle ? column / 2 : column - 6), y: line + 14,
                        anchor: middle ? 'middle' : 'end', fill: colour?.ink ?? colours.soft}));
    });
  });
  return {svg: out.join('\n'), width: Math.max(labels + column * data.columns.length, width(how),
                                               beside - x + width(formula)),
          height: top - y + ROW * (data.values.length + 1)};
}

/** The tokens, each with its id below. */
function tokens(section, colours, y) {
  const parts = [written({text: section.heading.textContent, x: 20, y: y + 12, bold: true})];
  let x = 20;
  for (const chip of section.chips.querySelectorAll('button')) {
    const [text, id] = [...chip.children].map(each => each.textContent), room = Math.max(width(text), width(id));
    parts.push(written({text, x: x + room / 2, y: y + 34, anchor: 'middle'}));
    if (id) parts.push(written({text: id, x: x + room / 2, y: y + 50, anchor: 'middle', fill: colours.soft}));
    x += room + 14;
  }
  return {svg: parts.join('\n'), width: Math.max(x, 20 + width(section.heading.textContent) * BOLD), height: 56};
}

/**
 * The drawing.
 * @param {Display} display
 * @param {StepsColumn} steps
 * @returns {string}
 */
export function pictureOf(display, steps) {
  const dark = document.documentElement.dataset.theme === 'dark';
  const colours = {...PALETTES[dark ? 'dark' : 'light'], soft: dark ? '#b9bec6' : '#4d535c'};
  const parts = [];
  let y = 20, widest = 300;
  const order = [...steps.root.children], at = section => order.indexOf(section.element);
  for (const section of [...steps.sections.values()].sort((a, b) => at(a) - at(b))) {
    let x = 20, tallest = 0;
    if (section.chips) {
      const drawn = tokens(section, colours, y);
      parts.push(drawn.svg);
      x = drawn.width;
      tallest = drawn.height;
    }
    for (const {step} of section.chips ? [] : section.blocks) {
      const title = titleOf(step), mode = display.mode(step), runs = display.runs(step, title);
      const draw = () => {
        let left = x;
        return runs.map(({name, data}) => {
          const drawn = matrix(data, colours, left, y, {title, formula: step.operation ? step.formula : '',
                                                        how: name || modeText(mode, display.state) || ''});
          left += drawn.width + GAP;
          return {...drawn, right: left};
        });
      };
      let drawn = draw();
      if (x > 20 && drawn.at(-1).right > WIDEST) {  // a new line
        [x, y, tallest] = [20, y + tallest + GAP, 0];
        drawn = draw();
      }
      parts.push(...drawn.map(each => each.svg));
      x = drawn.at(-1).right;
      widest = Math.max(widest, x);
      tallest = Math.max(tallest, ...drawn.map(each => each.height));
    }
    widest = Math.max(widest, x);
    y += tallest + GAP;
  }
  const [across, down] = [Math.ceil(widest), Math.ceil(y)];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${across} ${down}" width="${across}" height="${down}" ` +
    `font-family='${FONT}' font-size="12" fill="${dark ? '#e8eaed' : '#1c1f23'}">` +
    `<rect width="100%" height="100%" fill="${dark ? '#17191d' : '#ffffff'}"/>\n` +
    `${parts.join('\n')}\n</svg>\n`;
}
