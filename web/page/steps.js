// web/page/steps.js: the column of steps: one section a step (q, k and v beside each other), updated in place.
import {isPairs} from './explanation.js';
import {MatrixView} from './matrix.js';
import {make, setText} from './elements.js';
import {say} from './words.js';
import {sumAndEntropy} from './what_if.js';
import {signedClass, weightClass, PALETTES} from './colours.js';
import {hiddenSign, modeText} from './display.js';
import {short} from './numbers.js';

/** Steps that belong beside each other: tokens with ids; neighbours of one kind and operation. */
function grouped(explanation) {
  const groups = [], shown = new Set();
  for (const step of explanation.steps) {
    const last = groups.at(-1), before = last?.steps.at(-1);
    const together = before && (step.kind === 'ids' && before.kind === 'words' ||
      step.kind === 'table' && before.kind === 'table' && step.operation === before.operation &&
      ['project', 'rotate', 'int8'].includes(step.operation) && sameInputs(step, before));
    if (together) last.steps.push(step);
    else groups.push({steps: [step], parameters: []});
    for (const name of step.inputs || []) {
      const parameter = explanation.parameters.find(each => each.name === name);
      if (parameter && !shown.has(name)) {
        shown.add(name);
        groups.at(-1).parameters.push(parameter);
      }
    }
  }
  return groups.map(group => ({...group, key: [...group.parameters, ...group.steps].map(each => each.name).join(' ')}));
}
const sameInputs = (a, b) => a.inputs.length === b.inputs.length;

/** A matrix with the name of its run, which is shown where there are two. */
function newRun(view) {
  const name = make('p.small', {hidden: true});
  return {view, name, element: make('div.run', {}, name, view.element)};
}

/** The name of a step for people: "W_q", "词嵌入 x". */
export const titleOf = step => step.title || step.name;

/** The steps on the page. */
export class StepsColumn {
  /** @param {HTMLElement} root @param {object} events of main.js: point, pin, paint, painting, head, choose */
  constructor(root, events) {
    Object.assign(this, {root, events, sections: new Map(), blocks: new Map(), marked: [null]});
    addEventListener('beforeprint', () => {  // what was not scrolled to is printed too
      for (const block of this.blocks.values()) if (block.dirty) this.#draw(block);
    });
    this.observer = new IntersectionObserver(entries => {
      for (const {target, isIntersecting} of entries) {
        const block = this.blocks.get(target.dataset.step);
        if (block?.element !== target) continue;
        block.visible = isIntersecting;
        if (isIntersecting && block.dirty) this.#draw(block);
      }
      this.mark(...this.marked);  // also on what has just been drawn
    }, {rootMargin: '200px'});
  }

  /**
   * Shows the steps.
   * @param {Display} display
   * @param {{only?: string|null, covered?: string[]}} lesson the step that is shown, with what it is made of, and those
   *        whose numbers are covered
   */
  show(display, {only = null, covered = []} = {}) {
    this.display = display;
    let groups = grouped(display.explanation);
    const wanted = groups.find(group => group.steps.some(step => step.name === only));
    if (wanted) {
      const names = new Set(wanted.steps.flatMap(step => step.inputs || []));
      groups = groups.filter(group => group === wanted || group.steps.some(step => names.has(step.name)));
    }
    const kept = new Set(groups.map(group => group.key));
    for (const [key, section] of this.sections) if (!kept.has(key)) this.#remove(key, section);
    const numbers = new Map(grouped(display.explanation).map((group, at) => [group.key, at + 1]));
    groups.forEach((group, at) => {
      const section = this.sections.get(group.key) || this.#add(group);
      if (this.root.children[at] !== section.element) this.root.insertBefore(section.element, this.root.children[at]);
      section.element.classList.toggle('covered', [...group.parameters, ...group.steps].some(step =>
        covered.includes(step.name)));
      section.body.dataset.covered = say('covered');
      this.#fill(section, group, numbers.get(group.key));
    });
  }

  #remove(key, section) {
    section.element.remove();
    this.sections.delete(key);
    for (const block of section.blocks) {
      this.observer.unobserve(block.element);
      if (this.blocks.get(block.name) === block) this.blocks.delete(block.name);
    }
  }

  #add(group) {
    const number = make('span.number'), heading = make('h2'), formula = make('code.formula'), note = make('p.note');
    const body = make('div.body'), badge = make('span.badge', {hidden: true});
    const element = make('section.step', {}, make('header', {}, number, heading, formula, badge), note, body);
    const section = {element, number, heading, formula, note, badge, body, blocks: []};
    if (group.steps[0].kind === 'words') section.chips = body.appendChild(make('ol.chips'));
    else {
      for (const step of group.parameters) section.blocks.push(this.#block(step, section));
      if (group.parameters.length) body.append(make('div.break'));
      for (const step of group.steps) section.blocks.push(this.#block(step, section));
      if (group.steps[0].kind === 'weights' && group.steps[0].operation === 'softmax') {
        section.heads = element.insertBefore(make('div.heads', {role: 'group'}), body);
        section.legend = element.appendChild(make('p.legend', {hidden: true}));
        section.chosen = this.#chosen(section);
      }
    }
    this.sections.set(group.key, section);
    return section;
  }

  #block(step, section) {
    const place = at => {  // in the run of now: the other one may have more tokens
      const {values, columns} = view.data, inside = at && at[0] < values.length && at[1] < columns.length;
      return inside ? {step: step.name, row: at[0], column: at[1]} : null;
    };
    const newView = () => new MatrixView({
      point: at => this.events.point(place(at)), pin: at => place(at) && this.events.pin(place(at)),
      paint: (row, column) => place([row, column]) && this.events.paint(row, column, view),
      painting: () => isPairs(step) && this.events.painting(),
    });
    const view = newView(), run = newRun(view);
    const title = make('strong'), formula = make('code.formula');
    const zoom = make('span.zoom', {hidden: true},
      make('button', {type: 'button', text: '−', 'data-label': 'zoom_out', on: {click: () => zoomBy(-1)}}),
      make('button', {type: 'button', text: '+', 'data-label': 'zoom_in', on: {click: () => zoomBy(1)}}));
    const room = make('div.runs', {}, run.element);
    const element = make('div.block', {'data-step': step.name}, make('div.caption', {}, title, formula, zoom), room);
    const block = {name: step.name, element, view, run, title, formula, zoom, visible: false, dirty: true, beside: null,
                   views: () => [...block.beside && !block.beside.element.hidden ? [block.beside.view] : [], view],
                   addBeside: () => { room.prepend((block.beside = newRun(newView())).element); }};
    const zoomBy = steps => block.views().forEach(each => each.zoomBy(steps));
    section.body.append(element);
    this.blocks.set(step.name, block);
    this.observer.observe(element);
    return block;
  }

  /** The matrix of sums over chosen tokens and of entropies, beside the weights. */
  #chosen(section) {
    const view = new MatrixView({point: () => {}, pin: () => {}, paint: () => {}, painting: () => false});
    const title = make('strong'), element = make('div.block.chosen', {hidden: true}, make('div.caption', {}, title),
                                                 view.element);
    section.body.append(element);
    return {element, view, title};
  }

  #fill(section, group, number) {
    const {display} = this, titles = group.steps.map(titleOf), single = group.steps.length === 1;
    const modes = new Set(group.steps.filter(step => step.kind !== 'words' && step.kind !== 'ids').map(step =>
        display.mode(step)));
    modes.delete('plain');
    const mode = [...modes][0];
    setText(section.number, number);
    setText(section.heading, titles.join(say('comma')));
    setText(section.formula, single ? group.steps[0].formula : '');
    setText(section.note, single ? [group.steps[0].note, group.steps[0].source].filter(Boolean).join(' · ')
      : group.steps.map(step => step.note).filter(Boolean).join(' · '));
    section.badge.hidden = !mode;
    if (mode) setText(section.badge, modeText(mode, display.state));
    section.element.dataset.mode = mode || 'plain';
    if (section.chips) return this.#fillChips(section.chips, group);
    [...group.parameters, ...group.steps].forEach((step, at) => {
      const block = section.blocks[at], isParameter = at < group.parameters.length;
      block.step = step;
      setText(block.title, single && !isParameter && !group.parameters.length ? '' : titleOf(step));
      setText(block.formula, single || isParameter ? '' : step.formula);
      block.element.classList.toggle('parameter', isParameter);
      block.view.element.style.minHeight =
        `${Math.min(24 + 26 * (step.shape.at(step.shape.length > 1 ? -2 : -1) || 1), 520)}px`;
      block.dirty = true;
      if (block.visible) this.#draw(block);
    });
    if (section.heads) {
      this.#fillHeads(section.heads, group.steps[0]);
      this.#fillChosen(section.chosen, group.steps[0]);
      this.#fillLegend(section.legend, group.steps[0]);
    }
  }

  #draw(block) {
    const runs = this.display.runs(block.step, titleOf(block.step)), two = runs.length > 1;
    if (two && !block.beside) block.addBeside();
    if (block.beside) block.beside.element.hidden = !two;
    block.element.classList.toggle('two', two);
    [...two ? [block.beside] : [], block.run].forEach(({name, view}, at) => {
      name.hidden = !two;
      setText(name, runs[at].name);
      view.show(runs[at].data);
    });
    block.zoom.hidden = !block.view.canvas;
    block.dirty = false;
  }

  /** The view of a step, with its newest numbers. */
  viewOf(name) {
    const block = this.blocks.get(name);
    if (block?.dirty) this.#draw(block);
    return block?.view;
  }

  #fillChips(list, group) {
    const {display} = this, {explanation, sentence} = display, [words, ids] = group.steps;
    const tokens = explanation.rowLabels(words, sentence), isKeys = words.name === 'tokens_to' ||
      !explanation.step('tokens_to');
    const numbers = ids ? explanation.matrix(ids, sentence, 0) : null;
    while (list.children.length > tokens.length) list.lastChild.remove();
    tokens.forEach((token, at) => {
      let item = list.children[at];
      if (!item) {
        item = list.appendChild(make('li', {}, make('button', {type: 'button'}, make('span.token'), make('span.id'))));
        const keys = isKeys;
        item.firstChild.addEventListener('click', () => this.events.choose(at, keys));
        item.firstChild.addEventListener('pointerenter', () => this.mark({token: at}));
        item.firstChild.addEventListener('pointerleave', () => this.mark(null));
      }
      const [text, id] = item.firstChild.children, chosen = isKeys && display.state.chosen.includes(at);
      setText(text, token);
      setText(id, numbers ? numbers[at][0] : '');
      item.firstChild.setAttribute('aria-pressed', chosen);
      item.firstChild.classList.toggle('off', isKeys && display.state.off.keys.includes(at));
      item.firstChild.disabled = !isKeys;
    });
  }

  #fillHeads(root, step) {
    const {display} = this;
    root.hidden = step.heads < 2;
    root.setAttribute('aria-label', say('heads'));
    const count = root.hidden ? 0 : step.heads;
    while (root.children.length > count) root.lastChild.remove();
    for (let head = 0; head < count; ++head) {
      let button = root.children[head];
      if (!button) {
        button = root.appendChild(make('button', {type: 'button', on: {click: () => this.events.head(head)}},
                                       make('canvas', {'aria-hidden': 'true'}), make('span')));
      }
      button.setAttribute('aria-pressed', head === display.headOf(step));
      button.classList.toggle('off', display.state.off.heads.includes(head));
      setText(button.lastChild, say('head_n', {n: head}));
      drawSmall(button.firstChild, display.plain(step, head));
    }
  }

  #fillChosen(chosen, step) {
    const {display} = this, list = display.state.chosen;
    chosen.element.hidden = !list.length;
    if (!list.length) return;
    const {explanation, sentence} = display, keys = explanation.tokens(sentence, true);
    const values = sumAndEntropy(display.plain(step), list.filter(j => j < keys.length));
    const largest = Math.max(...values.map(row => row[1]), 1e-9);
    setText(chosen.title, say('chosen_sum', {tokens: list.map(j => keys[j]).join(' + ')}));
    chosen.view.show({
      label: chosen.title.textContent, rows: explanation.rowLabels(step, sentence),
      columns: [say('sum'), say('entropy')], values, digits: 4, textOf: value => short(value, 4),
      classOf: (value, i, j) => j === 0 ? weightClass(value, keys.length) : signedClass(value, 3 * largest),
    });
    chosen.values = values;
  }

  #fillLegend(legend, step) {
    const reasons = [...this.display.reasons()];
    const lines = [reasons.map(reason => `${hiddenSign(reason)} ${say(`hidden_${reason}`)}`).join('   '),
                   ...this.display.rowsOff(step)].filter(Boolean);
    legend.hidden = !lines.length;
    setText(legend, lines.join('\n'));
  }

  /** Marks a place, its row and column through all steps, and the numbers that it is made of. */
  mark(place, made = null) {
    const {display} = this;
    if (!display) return;
    this.marked = [place, made];
    const step = place && place.step ? display.explanation.step(place.step) : null;
    const ofQuery = step?.operation === 'row_of' ? display.explanation.query() : null;
    const query = place?.token ?? ofQuery ?? (step && (isPairs(step) || !step.key_rows) ? place.row : null);
    const key = place?.token ?? (step && isPairs(step) ? place.column : step?.key_rows ? place.row : null);
    const boxes = made ? inputBoxes(made, display) : new Map();
    for (const [block, view] of [...this.blocks.values()].flatMap(block => block.views().map(view => [block, view]))) {
      if (!view.data || !block.step) continue;
      if (!place) {
        view.mark(null);
        continue;
      }
      const {values, columns} = view.data, own = block.step === step, isParameter = !block.step.operation;
      const row = own ? place.row : isParameter ? null : block.step.key_rows ? key : query;
      const column = own ? place.column : isPairs(block.step) ? key : null;
      const single = values.length === 1 && !own;
      view.mark({
        row: row === null || row === undefined || row >= values.length || single ? null
            : {row, columns: columns.length},
        column: column === null || column >= columns.length ? null : {column, rows: values.length},
        cell: own && place.row < values.length && place.column < columns.length
          ? {row: place.row, column: place.column} : null,
        inputs: view === block.view && boxes.get(block.name) || null,
      });
    }
  }

  /** Brings a place into view; gives its block. */
  reveal(place, smooth = true) {
    const block = this.blocks.get(place.step);
    if (!block) return null;
    if (block.dirty) this.#draw(block);
    block.element.scrollIntoView({block: 'nearest', behavior: smooth ? 'smooth' : 'instant'});
    block.view.reveal(place.row, place.column);
    return block;
  }

  /** Draws what is drawn in pixels again, in the colours of the theme. */
  repaint() {
    for (const block of this.blocks.values()) for (const view of block.views()) view.draw();
    for (const section of this.sections.values())
      if (section.heads && this.display) for (const [head, button] of [...section.heads.children].entries())
        drawSmall(button.firstChild, this.display.plain(section.blocks.at(-1).step, head));
  }
}

/** The box around the inputs of each step that the number is made of. */
function inputBoxes(made, display) {
  const boxes = new Map();
  for (const {place} of made.partials) {
    const step = display.explanation.step(place.step);
    if (!step || step.heads > 1 && place.head !== display.headOf(step)) continue;  // no step of this run
    const box = boxes.get(place.step);
    if (!box) boxes.set(place.step, {top: place.row, left: place.column, bottom: place.row, right: place.column});
    else {
      box.top = Math.min(box.top, place.row);
      box.bottom = Math.max(box.bottom, place.row);
      box.left = Math.min(box.left, place.column);
      box.right = Math.max(box.right, place.column);
    }
  }
  return new Map([...boxes].map(([name, {top, left, bottom, right}]) =>
    [name, {row: top, column: left, rows: bottom - top + 1, columns: right - left + 1}]));
}

/** One head's weights as a small picture: a pixel a number, enlarged by the style. */
function drawSmall(canvas, matrix) {
  const [rows, columns] = [matrix.length, matrix[0].length];
  const colours = PALETTES[document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light'];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.aspectRatio = `${columns} / ${rows}`;
  }
  const paint = canvas.getContext('2d'), image = paint.createImageData(columns, rows);
  for (let i = 0, at = 0; i < rows; ++i) {
    for (let j = 0; j < columns; ++j, at += 4) {
      const value = matrix[i][j], {rgb} = colours[value === null ? 'hid' : weightClass(value, columns)];
      [image.data[at], image.data[at + 1], image.data[at + 2], image.data[at + 3]] = [...rgb, 255];
    }
  }
  paint.putImageData(image, 0, 0);
}
