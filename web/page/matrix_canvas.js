// web/page/matrix_canvas.js: draws the cells of a large matrix that are in view, with as much text as fits.
import {PALETTES} from './colours.js';

/** The sizes of a cell in pixels that one can zoom through. */
export const ZOOMS = [3, 5, 8, 12, 18, 26, 40, 58];

const FONT = 'ui-sans-serif, system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';

function context(view) {
  const {canvas} = view, scale = globalThis.devicePixelRatio || 1;
  const width = Math.min(view.room.width || 800, parseFloat(view.sheet.style.width));
  const height = Math.min(view.room.height || 480, parseFloat(view.sheet.style.height));
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

const CUT = new Map();

/** Cuts a text to a width with an ellipsis. */
function cut(paint, text, width) {
  const key = `${text}\n${width}`;
  if (CUT.has(key)) return CUT.get(key);
  let length = text.length;
  const part = () => length < text.length ? `${text.slice(0, length)}…` : text;
  while (length > 1 && paint.measureText(part()).width > width) --length;
  if (CUT.size > 4000) CUT.clear();
  CUT.set(key, part());
  return part();
}

/** The grounds of the cells from row and column [from, to): a pixel a cell, enlarged by the browser. */
function grounds(view, rows, columns, colours) {
  const small = view.small ??= document.createElement('canvas'), paint = small.getContext('2d');
  const [width, height] = [columns[1] - columns[0], rows[1] - rows[0]];
  if (small.width !== width || small.height !== height) Object.assign(small, {width, height});
  const image = paint.createImageData(width, height), pixels = image.data, {values, classOf} = view.data;
  for (let i = rows[0], at = 0; i < rows[1]; ++i) {
    for (let j = columns[0]; j < columns[1]; ++j, at += 4) {
      const colour = colours[classOf(values[i][j], i, j)];
      if (!colour) continue;
      const {rgb} = colour;
      pixels[at] = rgb[0];
      pixels[at + 1] = rgb[1];
      pixels[at + 2] = rgb[2];
      pixels[at + 3] = 255;
    }
  }
  paint.putImageData(image, 0, 0);
  return small;
}

/** Draws the visible part of `view`, a MatrixView. */
export function drawCells(view) {
  const {data, columnWidth: w, rowHeight: h, labelWidth, headHeight} = view;
  const {paint, width, height} = context(view);
  const theme = document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light';
  const colours = PALETTES[theme], ink = theme === 'dark' ? '#b9bec6' : '#4d535c';
  const ground = theme === 'dark' ? '#17191d' : '#ffffff';
  const {left, top} = view.room;
  paint.fillStyle = ground;
  paint.fillRect(0, 0, width, height);
  const columns = [Math.floor(left / w), Math.min(data.columns.length, Math.ceil((left + width - labelWidth) / w))];
  const rows = [Math.floor(top / h), Math.min(data.values.length, Math.ceil((top + height - headHeight) / h))];
  if (rows[0] >= rows[1] || columns[0] >= columns[1]) return;
  const x0 = labelWidth + columns[0] * w - left, y0 = headHeight + rows[0] * h - top;
  const [across, down] = [(columns[1] - columns[0]) * w, (rows[1] - rows[0]) * h];
  paint.imageSmoothingEnabled = false;
  paint.drawImage(grounds(view, rows, columns, colours), x0, y0, across, down);
  if (w >= 8) {  // thin lines between the cells
    for (let x = x0 + w - 1; x < x0 + across; x += w) paint.fillRect(x, y0, 1, down);
    for (let y = y0 + h - 1; y < y0 + down; y += h) paint.fillRect(x0, y, across, 1);
  }
  paint.textBaseline = 'middle';
  paint.textAlign = 'right';
  paint.font = `${w >= 58 ? 12 : 11}px ${FONT}`;
  const text = w >= 34, dash = w >= 5 && data.signed;
  for (let i = rows[0]; (text || dash) && i < rows[1]; ++i) {
    const y = headHeight + i * h - top;
    for (let j = columns[0]; j < columns[1]; ++j) {
      const value = data.values[i][j], x = labelWidth + j * w - left;
      if (text) {
        paint.fillStyle = value === null ? ink : colours[data.classOf(value, i, j)].ink;
        paint.fillText(data.textOf(value, i, j), x + w - 5, y + h / 2);
      } else if (value < 0) {  // the sign, in more than the hue
        paint.fillStyle = colours[data.classOf(value, i, j)].ink;
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
