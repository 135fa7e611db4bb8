// web/page/lesson_player.js: plays the lessons: an idea, its code, a question before the answer, then free play from
// there.
import {lessons} from './lessons/index.js';
import {byId, make} from './elements.js';
import {inLanguage, say} from './words.js';
import {fromStart} from './state.js';

/** The lessons on the page. */
export class LessonPlayer {
  constructor(page) {
    this.page = page;
    this.root = byId('lesson');
    this.lesson = null;
    this.at = 0;
    this.given = new Map();  // lesson.step -> the choice
    this.tab = 'cpp';
  }

  /** Begins with the lesson that the state names ("id" or "id.step"); false if there is none. */
  start() {
    const [id, at] = (this.page.state.lesson || '').split('.');
    const lesson = lessons.find(each => each.id === id);
    if (!lesson) {
      this.page.state.lesson = null;
      return false;
    }
    this.go(lesson, Math.min(Math.max(0, +at || 0), lesson.steps.length - 1));
    return true;
  }

  /** The list of all lessons. */
  list() {
    this.lesson = null;
    this.page.state.lesson = null;
    this.listed = true;
    this.page.draw();
    this.render();
  }

  go(lesson, at) {
    Object.assign(this, {lesson, at, listed: false});
    const {state, focus} = lesson.steps[at], {language} = this.page.state;
    this.page.state = {...fromStart({...state, options: {...state.options, language}}, language),
                       lesson: `${lesson.id}.${at}`, language, sentence: focus?.batch ?? 0, head: focus?.head ?? 0};
    this.page.history = [];
    this.page.place = null;
    this.page.ask().then(() => this.reveal());
    this.render();
    scrollTo({top: 0});
  }

  /** Free play from exactly where the lesson is. */
  leave() {
    this.lesson = null;
    this.listed = false;
    this.page.state.lesson = null;
    this.render();
    this.page.draw();
  }

  step() {
    return this.lesson?.steps[this.at] ?? null;
  }

  answered() {
    const step = this.step();
    return !step?.question || this.given.has(`${this.lesson.id}.${this.at}`);
  }

  /** What the column shows: the step the lesson is about and its inputs; covered until the answer is given. */
  view() {
    const step = this.step(), name = step?.focus?.step;
    return name ? {only: name, covered: this.answered() ? [] : this.#answers(step)} : {};
  }

  /** The steps in which the answer can be read: what the step is about, what the question is about, what is masked. */
  #answers({focus, question: {check}}) {
    const masked = this.page.explanation?.steps.filter(step => step.hidden) ?? [];
    return [focus.step, check.step, ...check.kind === 'masked' ? masked.map(step => step.name) : []];
  }

  reveal() {
    const focus = this.step()?.focus, {page} = this;
    if (!focus || !page.explanation?.step(focus.step)) return;
    if (this.answered() && Number.isInteger(focus.column) && Number.isInteger(focus.row))
      page.inspect({step: focus.step, row: focus.row, column: focus.column});
  }

  update(state) {
    if (state.lesson && !this.lesson && !this.listed) this.start();
    const key = JSON.stringify([state.lesson, state.language, this.listed]);
    if (key !== this.key) this.render();
    this.key = key;
  }

  render() {
    const playing = Boolean(this.lesson), {root} = this;
    document.body.classList.toggle('in-lesson', playing);
    document.body.classList.toggle('lesson-list', Boolean(this.listed));
    for (const [id, on] of [['explore', !playing && !this.listed], ['lessons', playing || this.listed]])
      byId(id).setAttribute('aria-current', on ? 'page' : 'false');
    root.hidden = !playing && !this.listed;
    if (this.listed) root.replaceChildren(this.#list());
    else if (playing) root.replaceChildren(...this.#card());
    else root.replaceChildren();
  }

  #list() {
    return make('div.lessonlist', {}, make('h2', {text: say('lessons')}), make('p.note', {text: say('lessons_about')}),
      make('ol', {}, ...lessons.map((lesson, n) => make('li', {}, make('button', {type: 'button',
        on: {click: () => this.go(lesson, 0)}}, make('span.number', {text: n + 1}),
        make('strong', {text: inLanguage(lesson.title)}),
            make('small', {text: say('n_steps', {n: lesson.steps.length})}))))));
  }

  #card() {
    const step = this.step(), count = this.lesson.steps.length;
    const button = (name, run, disabled) => make('button', {type: 'button', text: say(name), disabled,
        on: {click: run}});
    const position = make('span.small', {text: say('step_of', {n: this.at + 1, of: count})});
    const last = this.at + 1 === count, next = lessons[lessons.indexOf(this.lesson) + 1];
    const forward = make('button.main', {type: 'button', text: last ? (next ? say('next_lesson') : say('all_lessons'))
      : say('next'), on: {click: () => last ? (next ? this.go(next, 0) : this.list()) : this.go(this.lesson,
          this.at + 1)}});
    return [
      make('div.lessonhead', {}, make('h2', {text: inLanguage(this.lesson.title)}), position,
           make('progress', {max: count, value: this.at + 1, 'aria-label': say('step_of',
               {n: this.at + 1, of: count})})),
      make('p.idea', {text: inLanguage(step.idea)}), this.#code(step), this.#question(step),
      make('nav.fields', {'aria-label': say('lessons')}, button('previous', () => this.go(this.lesson, this.at - 1),
          this.at === 0),
           forward, button('try_it', () => this.leave()), button('all_lessons', () => this.list())),
    ].filter(Boolean);
  }

  #code(step) {
    const names = Object.keys(step.code || {}).filter(name => step.code[name]);
    if (!names.length) return null;
    const pre = make('pre', {tabindex: '0'}, make('code'));
    const tabs = names.map(name => make('button.tab', {type: 'button', text: {cpp: 'C++', python: 'Python'}[name] ??
        name,
      on: {click: () => show(name)}}));
    const show = name => {
      this.tab = name;
      pre.firstChild.textContent = step.code[name].trimEnd();
      pre.setAttribute('aria-label', {cpp: 'C++', python: 'Python'}[name] ?? name);
      tabs.forEach((tab, n) => tab.setAttribute('aria-pressed', names[n] === name));
    };
    show(names.includes(this.tab) ? this.tab : names[0]);
    return make('div.lessoncode', {}, make('div.tabs', {}, ...tabs), pre);
  }

  #question(step) {
    const {question} = step, key = `${this.lesson.id}.${this.at}`;
    if (!question) return null;
    const given = this.given.get(key), done = given !== undefined;
    const choices = question.choices.map((choice, n) =>
        make(`button.choice${done && n === question.answer ? '.right' : ''}${
      done && n === given && n !== question.answer ? '.wrong' : ''}`, {
      type: 'button', disabled: done, 'aria-pressed': done ? String(n === given) : null,
      text: (done && n === question.answer ? '✓ ' : done && n === given ? '✗ ' : '') + inLanguage(choice),
      on: {click: () => {
        this.given.set(key, n);
        this.render();
        this.page.draw();
        this.reveal();
        this.root.querySelector('.why')?.focus();
      }}}));
    return make('div.question', {role: 'group', 'aria-label': say('question')},
        make('p', {text: inLanguage(question.text)}),
      make('div.choices', {}, ...choices), done ? make('p.why', {tabindex: '-1', role: 'status'},
        make('strong', {text: say(given === question.answer ? 'right' : 'not_quite')}), ` ${inLanguage(question.why)}`)
            : null);
  }

  report() {
    return {playing: this.lesson?.id ?? null, at: this.at, answered: this.answered(), listed: Boolean(this.listed),
            lessons: lessons.map(({id, steps}) => ({id, steps: steps.length}))};
  }
}
