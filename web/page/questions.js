// web/page/questions.js: what the engine is asked about a state: with a model, own matrices or random ones; how its
// texts are cut.
import {Explanation} from './explanation.js';
import {needsTokens, newState, toRequest} from './state.js';
import {cutWords} from './cut.js';
import {say} from './words.js';

/** Asks the engine of a page. */
export class Questions {
  /** @param {object} page main.js: engine, filesPanel, cut */
  constructor(page) {
    this.page = page;
  }

  /** Asks the engine about a state: with the model that is loaded, with own matrices or with random ones. */
  async explain(state) {
    const {model, at} = this.page.filesPanel;
    if (!model) return this.page.engine.explain(await this.request(state));
    return this.page.engine.explainModel({text: state.text[0], layer: at.layer, head: at.model_head,
                                          gradients: state.options.gradients, language: state.language});
  }

  /** What the engine is asked about a state where no model is loaded. */
  async request(state) {
    const {seed} = state.options;
    if (Number.isInteger(seed) && !Number.isSafeInteger(seed))
      throw new Error(say('seed_too_large', {n: Number.MAX_SAFE_INTEGER}));
    const tokens = needsTokens(state) ? (await this.textAlone(state)).tokens(0, true).length : 0;
    return toRequest(state, {tokens, cut: this.cutOf(state), matrices: this.page.filesPanel.matrices ?? undefined});
  }

  /** The explanation of a state's texts without its other options: how many tokens there are. */
  async textAlone(state) {
    const bare = {...state, mask: newState().mask, options: {...newState().options, tokens: state.options.tokens}};
    return new Explanation(await this.page.engine.explain(toRequest(bare, {cut: this.cutOf(state)})));
  }

  /** The words of texts without spaces: as the command wrote them into the page, else by the browser's rules. */
  cutOf(state) {
    if (state.options.tokens !== 'words') return undefined;
    return {...cutWords([...state.text, state.to]), ...this.page.cut};
  }

  /** The words of each text if one of them is cut by a rule that the library does not have; else null. */
  wordsOf(state, explanation) {
    const texts = [...state.text, ...state.to === null ? [] : [state.to]], cut = this.cutOf(state) || {};
    if (!texts.some(text => text in cut)) return null;
    const of = (text, at) => text === state.to ? explanation?.tokens(0, true)
      : explanation?.tokens(at).filter(token => !state.batch || token !== 'PAD');
    return Object.fromEntries(texts.map((text, at) => [text, cut[text] ?? of(text, at) ?? []]));
  }
}
