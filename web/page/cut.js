// web/page/cut.js: cuts Chinese and Japanese text into words with the browser's own rules.

const WITHOUT_SPACES = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;

/** The words of each text that has no spaces between them: {text: [words]}, or undefined where none has. */
export function cutWords(texts) {
  if (!globalThis.Intl?.Segmenter) return undefined;
  const cut = {};
  for (const text of texts) {
    if (text === null || !WITHOUT_SPACES.test(text)) continue;
    const segmenter = new Intl.Segmenter('zh', {granularity: 'word'});
    cut[text] = [...segmenter.segment(text)].map(each => each.segment).filter(word => !/^[\s,，、]+$/u.test(word));
  }
  return Object.keys(cut).length ? cut : undefined;
}
