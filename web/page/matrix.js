// web/page/matrix.js: a matrix of numbers as a heat map that carries them: a table while it is small, a canvas that
// draws
// what is in view when it is large. Shown again it changes only the cells that differ.
import {drawCells, ZOOMS} from './matrix_canvas.js';

const LARGEST_TABLE = 600;  // cells; above it a table takes longer than a frame
const ROW = 26, HEAD = 24;
const MARKS = ['row', 'column', 'inputs', 'cell'];

const wide = /[\u1100-\u11ff\u2e80-\uffdc]/;
const labelWidth = labels => Math.round(Math.min(Math.max(
  ...labels.map(label => [...label].reduce((sum, c) => sum + (wide.test(c) ? 13.5 : 7.6), 0)), 14), 110)) + 16;
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;',
    '"': '&quot;'})[c]);

/** One matrix on the page. */
export class MatrixView {
  /**
   * @param {{point: Function, pin: Function, paint: Function, painting: Function}} events given (row, column); `point`
   *        gets null when the pointer leaves
   */
  constructor(events) {
    this.events = events;
    this.element = document.createElement('div');
    this.element.className = 'matrix';
    this.element.tabIndex = -1;
    this.sheet = this.element.appendChild(document.createElement('div'));
    this.sheet.className = 'sheet';
    this.marks = {};
    this.cursor = [0, 0];
    this.zoom = null;
    this.shape = '';
    this.element.addEventListener('pointermove', event => this.#move(event));
    this.element.addEventListener('pointerleave', () => this.#leave());
    this.element.addEventListener('pointerdown', event => this.#press(event));
    this.element.addEventListener('click', event => this.#click(event));
    this.element.addEventListener('keydown', event => this.#key(event));
    this.element.addEventListener('focusin', () => this.#focus());
    this.element.addEventListener('scroll', () => this.#measure(), {passive: true});
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  /**
   * Shows a matrix.
   * @param {{label: string, rows: string[], columns: string[], values: (number|null)[][], digits: number,
   *          classOf: (value: number, i: number, j: number) => string, textOf: (value: number|null, i: number, j:
   * number)
   *          => string, titles: boolean}} data
   */
  show(data) {
    this.data = data;
    const [R, C] = [data.values.length, data.columns.length], asTable = R * C <= LARGEST_TABLE;
    const shape = [R, C, data.digits, asTable, data.rows.join('\t'), data.columns.join('\t')].join('\n');
    if (shape !== this.shape) this.#build(asTable);
    this.shape = shape;
    if (asTable) this.#fill();
    else this.draw();
    const name = `${data.label}, ${R} × ${C}`;
    if (this.name !== name) (this.table || this.element).setAttribute('aria-label', this.name = name);
  }

  #build(asTable) {
    const {rows, columns, digits, wholeColumns} = this.data;
    this.name = null;
    this.labelWidth = labelWidth(rows);
    this.rowHeight = ROW;
    this.headHeight = HEAD;
    this.columnWidth = Math.max(digits >= 4 ? 66 : digits === 3 ? 54 : digits === 2 ? 42 : 34,
                                wholeColumns ? labelWidth(columns) : 0);
    this.cursor = [Math.min(this.cursor[0], rows.length - 1), Math.min(this.cursor[1], columns.length - 1)];
    this.sheet.textContent = '';
    this.marks = {};
    this.table = this.canvas = null;
    this.element.classList.toggle('large', !asTable);
    if (asTable) this.#buildTable();
    else this.#buildCanvas();
    for (const name of MARKS) {
      this.marks[name] = this.sheet.appendChild(document.createElement('div'));
      this.marks[name].className = `mark ${name}`;
      this.marks[name].hidden = true;
      this.marks[name].dataset.where = '';
    }
  }

  #buildTable() {
    const {rows, columns, values} = this.data;
    for (const name of ['tabindex', 'role', 'aria-label', 'aria-roledescription']) this.element.removeAttribute(name);
    const head = columns.map(label => `<th scope="col" title="${escape(label)}">${escape(label)}</th>`).join('');
    const body = values.map((row, i) => `<tr><th scope="row" title="${escape(rows[i])}">${escape(rows[i])}</th>` +
      `${columns.map((_, j) => `<td${i === this.cursor[0] && j === this.cursor[1] ? ' tabindex="0"' : ''}></td>`)
        .join('')}</tr>`).join('');
    const size = `<col style="width:${this.labelWidth}px">` +
      `<col style="width:${this.columnWidth}px">`.repeat(columns.length);
    this.sheet.style.width = `${this.labelWidth + columns.length * this.columnWidth}px`;
    this.sheet.style.height = '';
    this.sheet.innerHTML = `<table role="grid"><colgroup>${size}</colgroup><thead><tr><td class="corner"></td>${head}` +
      `</tr></thead><tbody>${body}</tbody></table>`;
    this.table = this.sheet.firstElementChild;
    this.cells = [...this.table.tBodies[0].querySelectorAll('td')];
    this.shownText = new Array(this.cells.length).fill('');
    this.shownClass = new Array(this.cells.length).fill('');
  }

  #fill() {
    const {values, columns, classOf, textOf} = this.data, {cells, shownText, shownClass} = this;
    for (let i = 0, n = 0; i < values.length; ++i) {
      for (let j = 0; j < columns.length; ++j, ++n) {
        const value = values[i][j], text = textOf(value, i, j), name = classOf(value, i, j);
        if (text !== shownText[n]) cells[n].textContent = shownText[n] = text;
        if (name !== shownClass[n]) cells[n].className = shownClass[n] = name;
      }
    }
  }

  /** Where and how large the part in view is: read only when it changes, because reading it lays the page out. */
  #measure() {
    if (!this.canvas) return;
    const {clientWidth: width, clientHeight: height, scrollLeft: left, scrollTop: top} = this.element;
    this.room = {width, height, left, top};
    this.draw();
  }

  #buildCanvas() {
    const {clientWidth: width, scrollLeft: left, scrollTop: top} = this.element;
    this.room = {width, height: 520, left, top};
    this.canvas = this.sheet.appendChild(document.createElement('canvas'));
    this.canvas.setAttribute('aria-hidden', 'true');
    this.element.tabIndex = 0;
    this.element.setAttribute('role', 'application');
    this.element.setAttribute('aria-roledescription', 'matrix');
    this.setZoom(this.zoom ?? this.#fitting());
  }

  /** The largest size of a cell at which the matrix is not wider than the page. */
  #fitting() {
    const {columns, rows} = this.data, room = this.room.width || 800;
    const fits = ZOOMS.filter(size => size * columns.length + (size >= 11 ? labelWidth(rows) : 0) <= room);
    return fits.at(-1) ?? ZOOMS[0];
  }

  /** Sets the size of a cell of a large matrix, in pixels. */
  setZoom(size) {
    const {columns, rows} = this.data;
    this.zoom = size;
    this.columnWidth = size;
    this.rowHeight = Math.min(size, ROW);
    this.labelWidth = size >= 11 ? labelWidth(rows) : 0;
    this.headHeight = size >= 11 ? HEAD : 0;
    this.sheet.style.width = `${this.labelWidth + columns.length * this.columnWidth}px`;
    this.sheet.style.height = `${this.headHeight + rows.length * this.rowHeight}px`;
    this.draw();
  }

  /** One step larger (1) or smaller (-1). */
  zoomBy(step) {
    const at = ZOOMS.indexOf(this.zoom) + step;
    if (this.canvas && at >= 0 && at < ZOOMS.length) this.setZoom(ZOOMS[at]);
  }

  /** Draws the part of a large matrix that is in view. */
  draw() {
    if (this.canvas) drawCells(this);
  }

  /** Marks a row, a column, the cell and the box of inputs: each {row, column, rows, columns} or null. */
  mark(marks) {
    for (const name of MARKS) {
      const box = marks && marks[name], element = this.marks[name];
      if (!element) continue;
      const {row = 0, column = 0, rows = 1, columns = 1} = box || {};
      const where = box ? [row, column, rows, columns, this.labelWidth, this.columnWidth, this.rowHeight].join() : '';
      if (element.dataset.where === where) continue;
      element.dataset.where = where;
      element.hidden = !box;
      if (!box) continue;
      element.style.transform =
        `translate(${this.labelWidth + column * this.columnWidth}px,${this.headHeight + row * this.rowHeight}px)`;
      element.style.width = `${columns * this.columnWidth}px`;
      element.style.height = `${rows * this.rowHeight}px`;
    }
  }

  /** Scrolls the matrix, not the page, until a cell is in view. */
  reveal(row, column) {
    const box = this.element, left = this.labelWidth + column * this.columnWidth;
    const top = this.headHeight + row * this.rowHeight;
    if (left - this.labelWidth < box.scrollLeft) box.scrollLeft = left - this.labelWidth;
    else if (left + this.columnWidth > box.scrollLeft + box.clientWidth)
      box.scrollLeft = left + this.columnWidth - box.clientWidth;
    if (top - this.headHeight < box.scrollTop) box.scrollTop = top - this.headHeight;
    else if (top + this.rowHeight > box.scrollTop + box.clientHeight)
      box.scrollTop = top + this.rowHeight - box.clientHeight;
  }

  /** The middle of a cell on the screen. */
  centre(row, column) {
    const box = this.sheet.getBoundingClientRect();
    return {x: box.x + this.labelWidth + (column + 0.5) * this.columnWidth,
            y: box.y + this.headHeight + (row + 0.5) * this.rowHeight};
  }

  #at(event) {
    if (!this.data) return null;
    const box = this.sheet.getBoundingClientRect(), outer = this.element.getBoundingClientRect();
    if (event.clientX - outer.left < this.labelWidth) return null;
    const row = Math.floor((event.clientY - box.top - this.headHeight) / this.rowHeight);
    const column = Math.floor((event.clientX - box.left - this.labelWidth) / this.columnWidth);
    const inside = row >= 0 && column >= 0 && row < this.data.values.length && column < this.data.columns.length;
    return inside ? [row, column] : null;
  }

  #move(event) {
    const at = this.#at(event), key = at ? at.join() : '';
    if (key === this.pointed) return;
    this.pointed = key;
    if (at && event.buttons === 1 && this.events.painting()) this.events.paint(...at);
    this.events.point(at);
  }

  #leave() {
    this.pointed = '';
    this.events.point(null);
  }

  #press(event) {
    const at = this.#at(event);
    if (at && event.button === 0 && this.events.painting()) {
      event.preventDefault();
      this.events.paint(...at);
    }
  }

  #click(event) {
    const at = this.#at(event);
    if (!at) return;
    this.setCursor(...at);
    if (!this.events.painting()) this.events.pin(at);
  }

  #focus() {
    if (this.element.matches(':focus-visible, :has(:focus-visible)')) this.events.point(this.cursor);
  }

  /** Moves the cell that has the focus when one tabs into the matrix. */
  setCursor(row, column) {
    if (this.table) {
      const columns = this.data.columns.length;
      this.cells[this.cursor[0] * columns + this.cursor[1]]?.removeAttribute('tabindex');
      this.cells[row * columns + column].tabIndex = 0;
    }
    this.cursor = [row, column];
  }

  #key(event) {
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                   Home: [0, -Infinity], End: [0, Infinity], PageUp: [-8, 0], PageDown: [8, 0]}[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (this.canvas && '+-'.includes(event.key)) this.zoomBy(event.key === '+' ? 1 : -1);
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      if (this.events.painting()) this.events.paint(...this.cursor);
      else this.events.pin(this.cursor);
    }
    if (!moves) return;
    event.preventDefault();
    const bound = (value, size) => Math.min(Math.max(value, 0), size - 1);
    this.setCursor(bound(this.cursor[0] + moves[0], this.data.values.length),
                   bound(this.cursor[1] + moves[1], this.data.columns.length));
    this.reveal(...this.cursor);
    if (this.table) this.cells[this.cursor[0] * this.data.columns.length + this.cursor[1]].focus();
    this.events.point(this.cursor);
  }
}
