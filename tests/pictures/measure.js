// tests/pictures/measure.js: what the browser made of each picture:
// where every character stands, its contrast, its ink as an image.
'use strict';
const SCALE = 2;  // pixels of the image for one of the picture

const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const colour = text => (text.match(/[\d.]+/g) || [0, 0, 0]).map(Number);

async function pixels(svg, width, height) {
  const image = new Image();
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(new XMLSerializer().serializeToString(svg));
  await image.decode();
  const canvas = document.createElement('canvas');
  canvas.width = width * SCALE;
  canvas.height = height * SCALE;
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// Whether a rectangle holds more than one colour.
function ink(image, left, top, right, bottom) {
  const x0 = Math.max(0, Math.round(left * SCALE)), x1 = Math.min(image.width, Math.round(right * SCALE));
  const y0 = Math.max(0, Math.round(top * SCALE)), y1 = Math.min(image.height, Math.round(bottom * SCALE));
  const first = 4 * (y0 * image.width + x0);
  for (let y = y0; y < y1; ++y)
    for (let x = x0; x < x1; ++x)
      for (let c = 0; c < 3; ++c)
        if (Math.abs(image.data[4 * (y * image.width + x) + c] - image.data[first + c]) > 24) return true;
  return false;
}

// Where a text that is rotated ends up in its picture.
function boxOnPage(svg, node) {
  const all = svg.getBoundingClientRect(), own = node.getBoundingClientRect();
  return {x: own.x - all.x, y: own.y - all.y, width: own.width, height: own.height};
}

function measureText(svg, node, image) {
  const text = node.textContent, characters = [], turned = node.hasAttribute('transform');
  const box = turned ? boxOnPage(svg, node) : node.getBBox();
  const points = [...text];
  let unit = 0, lost = 0;
  for (const point of points) {
    if (unit < node.getNumberOfChars()) {
      const begin = node.getStartPositionOfChar(unit), end = node.getEndPositionOfChar(unit + point.length - 1);
      if (point.trim()) characters.push([point, begin.x, end.x, begin.y]);
    } else ++lost;
    unit += point.length;
  }
  const left = turned ? box.x : Math.min(...characters.map(c => c[1]));
  const right = turned ? box.x + box.width : Math.max(...characters.map(c => c[2]));
  const style = getComputedStyle(node), y = box.y + box.height / 2;
  let ground = null, cell = null;
  for (const rect of svg.querySelectorAll('rect')) {
    const r = rect.getBBox();
    if (r.x <= (left + right) / 2 && (left + right) / 2 <= r.x + r.width && r.y <= y && y <= r.y + r.height) {
      ground = colour(getComputedStyle(rect).fill);
      cell = r.width < 120 ? [r.x, r.x + r.width] : null;
    }
  }
  return {text, characters, left, right, lost, cell, turned, top: box.y, bottom: box.y + box.height,
          x: parseFloat(node.getAttribute('x')), y: Number(node.getAttribute('y')), anchor: style.textAnchor,
          contrast: ground ? contrast(colour(style.fill), ground) : 0,
          ink: ink(image, left - 1, box.y, right + 1, box.y + box.height)};
}

async function measurePicture(svg) {
  const {width, height} = svg.viewBox.baseVal;
  const image = await pixels(svg, width, height);
  const texts = [...svg.querySelectorAll('text')].map(node => measureText(svg, node, image));
  const rows = [];  // of a terminal: the ink of each cell, less what a neighbour's letter may hang over
  for (let y = 16; y + 18 <= height - 16 + 1; y += 18) {
    const row = [];
    for (let x = 16; x + 8.4 <= width - 16 + 1; x += 8.4) row.push(ink(image, x + 1.5, y + 1, x + 6.9, y + 17));
    rows.push(row);
  }
  return {width, height, texts, ink: rows};
}

(async () => {
  const host = getComputedStyle(document.getElementById('host'));
  const found = [];
  for (const svg of document.querySelectorAll('.picture > svg')) found.push(await measurePicture(svg));
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  document.getElementById('result').textContent =
    JSON.stringify({dark, host: `${host.fontSize} ${host.color}`, pictures: found});
})();
