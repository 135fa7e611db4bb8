// web/page/words.js: the texts of the page in the language that is shown.
import {setText} from './elements.js';
import {english} from './words/en.js';
import {chinese} from './words/zh.js';
import {errorInChinese} from './errors.js';

const ALL = {en: english, zh: chinese};
let language = 'en';

/** Sets the language of `say`: en or zh. */
export function setLanguage(name) {
  language = ALL[name] ? name : 'en';
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
}

/** A text of the page; {name} in it is replaced by the field of that name. */
export function say(key, fields = {}) {
  const text = ALL[language][key] ?? ALL.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => name in fields ? String(fields[name]) : whole);
}

/** An error's line, of the library or of the page, in the language that is shown. */
export const sayError = message => language === 'zh' ? errorInChinese(message) : message;

/** Writes the texts of all elements below `root` that have data-say, and the labels of those with data-label. */
export function sayAll(root = document) {
  for (const element of root.querySelectorAll('[data-say]')) setText(element, say(element.dataset.say));
  for (const element of root.querySelectorAll('[data-label]')) {
    const text = say(element.dataset.label);
    if (element.title === text) continue;
    element.setAttribute('aria-label', text);
    element.title = text;
  }
}

/** The keys that one language has and the other lacks. */
export function missingWords() {
  const [en, zh] = [Object.keys(english), Object.keys(chinese)];
  return [...en.filter(key => !(key in chinese)), ...zh.filter(key => !(key in english))];
}

/** The text of {en, zh} that is shown. */
export const inLanguage = texts => texts[language] ?? texts.en;
