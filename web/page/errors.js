// web/page/errors.js: says an error of the library in Chinese, as the command does.
import {errors, reasons} from './words/chinese_errors.js';

/** What the engine itself says, which the command does not have. */
const OF_ENGINE = [
  ['the engine failed ({}) and was started anew; load the model again', '引擎出错（{0*}），已重新启动；请重新载入模型'],
  ['the engine failed ({}) and was started anew', '引擎出错（{0*}），已重新启动'],
  ['no memory left', '内存不足'],
];

/** What stands in the place of each {} of a pattern; null if the text is another one. */
function holesOf(pattern, text) {
  const [first, ...rest] = pattern.split('{}'), holes = [];
  if (!rest.length) return pattern === text ? [] : null;
  if (!text.startsWith(first)) return null;
  let at = first.length;
  for (const [n, part] of rest.entries()) {
    // the last part is at the end, the others at their first place
    const end = n + 1 < rest.length ? text.indexOf(part, at) : text.endsWith(part) ? text.length - part.length : -1;
    if (end < at) return null;
    holes.push(text.slice(at, end));
    at = end + part.length;
  }
  return holes;
}

function translated(tables, text) {
  for (const [english, chinese] of tables) {
    const holes = holesOf(english, text);
    if (holes === null) continue;
    return chinese.replace(/\{(\d)(\*?)\}/g, (_, n, marked) =>
      marked ? translated([...OF_ENGINE, ...reasons, ...errors], holes[n]) : holes[n]);
  }
  return text;
}

/** An error of the library in Chinese, with the user's words as they are; another text stays as it is. */
export const errorInChinese = text => translated([...OF_ENGINE, ...errors], text);
