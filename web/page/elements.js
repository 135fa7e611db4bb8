// web/page/elements.js: makes elements of the page.

/**
 * Makes an element.
 * @param {string} name such as 'button.small.pill': the tag and its classes
 * @param {object} fields attributes; `on` is {event: function}, `text` its text; false and null are left out
 * @param {...(Node|string|null)} children
 */
export function make(name, fields = {}, ...children) {
  const [tag, ...classes] = name.split('.'), element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  for (const [key, value] of Object.entries(fields)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'on') for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (key === 'text') element.textContent = value;
    else if (key === 'value') element.value = value;
    else if (key === 'checked') element.checked = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element; the same text again costs nothing. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export const byId = id => document.getElementById(id);

/** Lets the browser save `content` as a file. */
export function saveFile(name, content, type) {
  const link = make('a', {href: URL.createObjectURL(new Blob([content], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
