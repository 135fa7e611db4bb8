// web/page/matrix_canvas.js: draws the cells of a large matrix that are in view, with as much text as fits.
import {PALETTES} from './colours.js';

/** The sizes of a cell in pixels that one can zoom through. */
export const ZOOMS = [3, 5, 8, 12, 18, 26, 40, 58];

const FONT = 'ui-sans-serif, system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';

function context(view) {
  const {canvas, element} = view, scale = globalThis.devicePixelRatio || 1;
  const width = Math.min(element.clientWidth || 800, parseFloat(view.sheet.style.width));
  const height = Math.min(element.clientHeight || 480, parseFloat(view.sheet.style.height));
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const paint = canvas.getContext('2d');
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  return {paint, width, height};
}

/** Cuts a text to a width with an ellipsis. */
function cut(paint, text, width) {
  if (paint.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && paint.measureText(`${text.slice(0, length)}…`).width > width) --length;
  return `${text.slice(0, length)}…`;
}

/** Draws the visible part of `view`, a MatrixView. */
export function drawCells(view) {
  const {data, element, columnWidth: w, rowHeight: h, labelWidth, headHeight} = view;
  const {paint, width, height} = context(view);
  const theme = document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light';
  const colours = PALETTES[theme], ink = theme === 'dark' ? '#b9bec6' : '#4d535c';
  const ground = theme === 'dark' ? '#17191d' : '#ffffff';
  const left = element.scrollLeft, top = element.scrollTop;
  paint.fillStyle = ground;
  paint.fillRect(0, 0, width, height);
  const columns = [Math.floor(left / w), Math.min(data.columns.length, Math.ceil((left + width - labelWidth) / w))];
  const rows = [Math.floor(top / h), Math.min(data.values.length, Math.ceil((top + height - headHeight) / h))];
  const gap = w >= 8 ? 1 : 0, text = w >= 34;
  paint.textBaseline = 'middle';
  paint.textAlign = 'right';
  paint.font = `${w >= 58 ? 12 : 11}px ${FONT}`;
  for (let i = rows[0]; i < rows[1]; ++i) {
    const y = headHeight + i * h - top;
    for (let j = columns[0]; j < columns[1]; ++j) {
      const value = data.values[i][j], x = labelWidth + j * w - left;
      const name = data.classOf(value, i, j).split(' ')[0], colour = colours[name] || colours.n;
      if (value !== null) {
        paint.fillStyle = colour.ground;
        paint.fillRect(x, y, w - gap, h - gap);
      }
      if (text) {
        paint.fillStyle = value === null ? ink : colour.ink;
        paint.fillText(data.textOf(value, i, j), x + w - 5, y + h / 2);
      } else if (value < 0 && w >= 5) {  // the sign, in more than the hue
        paint.fillStyle = colour.ink;
        paint.fillRect(x + w * 0.3, y + h / 2 - 0.5, w * 0.4, 1);
      }
    }
  }
  if (!labelWidth) return;
  paint.fillStyle = ground;
  paint.fillRect(0, 0, labelWidth, height);
  paint.fillRect(0, 0, width, headHeight);
  paint.fillStyle = ink;
  paint.font = `12px ${FONT}`;
  paint.textAlign = 'left';
  const every = h >= 11 ? 1 : Math.ceil(11 / h);
  for (let i = rows[0]; i < rows[1]; i += every) {
    const y = headHeight + i * h - top + h / 2;
    if (y > headHeight) paint.fillText(cut(paint, data.rows[i], labelWidth - 12), 4, y);
  }
  if (w < 11) return;
  paint.textAlign = w >= 26 ? 'right' : 'left';
  for (let j = columns[0]; j < columns[1]; ++j) {
    const x = labelWidth + j * w - left;
    if (x >= labelWidth) paint.fillText(cut(paint, data.columns[j], w - 4), w >= 26 ? x + w - 5 : x + 1,
        headHeight / 2);
  }
}
