// web/page/code_panel.js: the call as C++, Python and a command line, ready to copy; what can be saved.
import {make} from './elements.js';
import {say} from './words.js';

const NAMES = {command: 'command_line', python: 'Python', cpp: 'C++'};

/** What a language is called on the page. */
export const codeName = name => NAMES[name].includes('_') ? say(NAMES[name]) : NAMES[name];

/** A box with code and a button that copies it; `update(text, why)`: why it cannot be copied, or ''. */
export function copyBox(name) {
  const title = make('span'), code = make('code'), pre = make('pre', {tabindex: '0'}, code);
  const button = make('button', {type: 'button', on: {click: async () => {
    button.textContent = await copied(pre, code.textContent) ? say('copied') : say('copy_by_hand');
    setTimeout(() => { button.textContent = say('copy'); }, 1500);
  }}});
  const element = make('div.codebox', {'data-code': name}, make('div.caption', {}, title, button), pre);
  return {name, element, update(text, why = '') {
    title.textContent = codeName(name);
    button.textContent = say('copy');
    button.disabled = Boolean(why);
    button.title = why;
    pre.setAttribute('aria-label', title.textContent);
    if (code.textContent !== text) code.textContent = text;
  }};
}

/** Copies text; where the browser does not allow it the code is selected. */
async function copied(pre, text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(pre);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand('copy');
  }
}

/** The panel of the code. */
export class CodePanel {
  constructor(page) {
    this.page = page;
    this.boxes = ['command', 'python', 'cpp'].map(copyBox);
    const button = (name, run) => make('button', {type: 'button', 'data-say': name, on: {click: run}});
    this.svg = button('save_svg', () => page.saveSvg());  // of a text, not of a model
    this.element = make('div.codepanel', {}, make('div.codes', {}, ...this.boxes.map(box => box.element)),
      make('div.fields', {}, button('save_view', () => page.saveView()), this.svg,
           button('save_json', () => page.saveJson()), button('copy_link', event => page.copyLink(event.target))));
  }

  update() {
    const code = this.page.code();
    for (const box of this.boxes) {
      box.update(code[box.name], this.page.refused);
      box.element.hidden = !code[box.name];
    }
    this.svg.hidden = Boolean(this.page.filesPanel.model);
  }
}
