// web/page/picture.js: what is on screen as an SVG drawing: the steps in order, with the numbers and colours of the
// page.
import {PALETTES} from './colours.js';
import {titleOf} from './steps.js';

const ROW = 20, GAP = 28, FONT = 'system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;',
    '"': '&quot;'})[c]);
const width = text => [...String(text)].reduce((sum, c) => sum + (c > '\u1100' ? 12 : 6.8), 0);

function matrix(data, colours, x, y, title) {
  const out = [], labels = Math.max(...data.rows.map(width), 10) + 10, column = Math.max(data.digits >= 4 ? 54 : 42,
    data.wholeColumns ? Math.max(...data.columns.map(width)) + 10 : 0);
  const write = (text, at, line, anchor, fill) => out.push(`<text x="${at}" y="${line}" text-anchor="${anchor}"` +
    `${fill ? ` fill="${fill}"` : ''}>${escape(text)}</text>`);
  out.push(`<text x="${x}" y="${y + 12}" font-weight="600">${escape(title)}</text>`);
  const top = y + 20;
  data.columns.forEach((label, j) => write(width(label) > column - 4 ? `${String(label).slice(0, 6)}…` : label,
                                           x + labels + (j + 1) * column - 6, top + 14, 'end', colours.soft));
  data.values.forEach((row, i) => {
    const line = top + ROW * (i + 1);
    write(data.rows[i], x, line + 14, 'start');
    row.forEach((value, j) => {
      const colour = colours[data.classOf(value, i, j)], left = x + labels + j * column;
      if (colour)
        out.push(`<rect x="${left}" y="${line}" width="${column - 1}" height="${ROW - 1}" fill="${colour.ground}"/>`);
      const middle = value === null;
      write(data.textOf(value, i, j), left + (middle ? column / 2 : column - 6), line + 14, middle ? 'middle' : 'end',
            colour?.ink ?? colours.soft);
    });
  });
  return {svg: out.join('\n'), width: labels + column * data.columns.length,
      height: 20 + ROW * (data.values.length + 1)};
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
  for (const section of steps.sections.values()) {
    let x = 20, tallest = 0;
    if (section.chips) {
      const words = [...section.chips.querySelectorAll('.token')].map(each => each.textContent).join('  ');
      parts.push(`<text x="20" y="${y + 12}" font-weight="600">${escape(section.heading.textContent)}</text>`,
                 `<text x="20" y="${y + 32}">${escape(words)}</text>`);
      widest = Math.max(widest, 40 + width(words));
      y += 40 + GAP;
      continue;
    }
    for (const block of section.blocks) {
      const step = block.step, title = step.operation ? `${titleOf(step)}   ${step.formula}` : titleOf(step);
      const drawn = matrix(display.data(step, title), colours, x, y, title);
      parts.push(drawn.svg);
      x += Math.max(drawn.width, width(title) * 1.1) + GAP;
      tallest = Math.max(tallest, drawn.height);
      widest = Math.max(widest, x);
    }
    y += tallest + GAP;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${Math.ceil(widest)} ${Math.ceil(y)}" ` +
    `width="${Math.ceil(widest)}" height="${Math.ceil(y)}" font-family='${FONT}' font-size="12" ` +
    `fill="${dark ? '#e8eaed' : '#1c1f23'}">` +
    `<rect width="100%" height="100%" fill="${dark ? '#17191d' : '#ffffff'}"/>\n` +
    `${parts.join('\n')}\n</svg>\n`;
}
