// web/engine.js: the library, compiled to WebAssembly, as an object; for browsers and Node 18 and later.
import { Files } from './engine/files.js';

const FOLDER = 'model';

/** Returns the bytes of base64 text that holds a gzip. */
async function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The bytes of the engine: of the packed page, or of the file beside the page while it is worked on. */
async function engineOfThePage() {
  const element = document.getElementById('attn-engine');
  if (element !== null) return unpacked(element.textContent);
  const response = await fetch(new URL('engine.wasm', document.baseURI));
  if (!response.ok) throw new Error(`engine.wasm: ${response.status}`);
  return response.arrayBuffer();
}

/** The bytes of a request: a text, or an object as JSON. What cannot be one throws before the engine is asked. */
function encoded(request) {
  return new TextEncoder().encode(typeof request === 'string' ? request : JSON.stringify(request));
}

/**
 * Explains attention, draws it, and runs small models. Each method throws an Error whose message is the library's line.
 * After a failure of the machine (no memory left, say) the engine has started anew and the next call works.
 */
export class Engine {
  #module;
  #starting = null;  // the promise of the last start; null after one that failed
  #instance;
  #files;
  #onToken = null;
  #hasModel = false;

  /**
   * Compiles and starts the engine.
   * @param {BufferSource | WebAssembly.Module} [source]  the engine's bytes; without it those of the page
   * @returns {Promise<Engine>}
   */
  static async open(source) {
    const engine = new Engine();
    source ??= await engineOfThePage();
    engine.#module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
    await engine.#start();
    engine.version = engine.#answer('engine_version');
    return engine;
  }

  /**
   * @param {{text: string | string[], to?: string | null, options?: object, cut?: Object<string, string[]>,
   *     matrices?: Object<string, {shape: number[], data: number[]}>}} request
   * @returns {Promise<string>} the JSON of `attn explain --json`, docs/explain_json.md
   */
  explain(request) { return this.#call('engine_explain', request); }

  /** @returns {Promise<string>} the drawing of `attn explain --svg`; the request is that of `explain` */
  svg(request) { return this.#call('engine_svg', request); }

  /**
   * Loads a model and its tokenizer. The engine copies what it needs; the files are not kept.
   * @param {Object<string, Uint8Array>} files  config.json, model.safetensors, tokenizer.json; or a GGUF file, all
   *     parts of it
   * @returns {Promise<{layers: number, heads: number, width: number, context: number, vocabulary: number,
   *     parameters: number}>}
   */
  async load(files) {
    const given = Object.entries(files), [gguf] = Object.keys(files).filter((name) => /\.gguf$/i.test(name)).sort();
    const path = encoded('config.json' in files || gguf === undefined ? FOLDER : `${FOLDER}/${gguf}`);
    return this.#run(() => {
      const held = this.#files.files;
      for (const [name, bytes] of given) held.set(`${FOLDER}/${name}`, bytes);
      this.#hasModel = false;
      try {
        const facts = JSON.parse(this.#asked('engine_load', path));
        this.#hasModel = true;
        return facts;
      } finally {
        held.clear();
      }
    });
  }

  /**
   * @param {{text: string, layer?: number, head?: number, gradients?: boolean, language?: 'en' | 'zh'}} request
   * @returns {Promise<string>} the JSON of `attn explain --model --json`
   */
  explainModel(request) { return this.#call('engine_explain_model', request); }

  /**
   * Continues a text.
   * @param {{prompt: string, tokens?: number, temperature?: number, seed?: number, top_k?: number, top_p?: number,
   *     stop?: string[]}} request
   * @param {(piece: string) => boolean | void} [onToken]  gets each new piece of text; false ends the text
   * @returns {Promise<string>} the new text
   */
  async generate(request, onToken) {
    const bytes = encoded(request);
    return this.#run(() => {
      this.#onToken = onToken ?? null;
      try {
        return this.#asked('engine_generate', bytes);
      } finally {
        this.#onToken = null;
      }
    });
  }

  /** Compares the kernels with the reference code; only Node's engine has it. Returns the digest. */
  verify(quick = true) { return this.#run(() => this.#answer('engine_verify', quick ? 1 : 0)); }

  /** Starts the engine; calls wait for it. */
  #start() {
    this.#starting = this.#instantiate().catch((error) => {
      this.#starting = null;  // the next call tries again
      throw error;
    });
    return this.#starting;
  }

  async #instantiate() {
    this.#files = new Files(() => this.#instance.exports.memory);
    const imports = this.#files.imports(this.#module);
    imports.attn = { on_token: (at, size) => (this.#onToken?.(this.#files.text(at, size)) === false ? 0 : 1) };
    this.#instance = await WebAssembly.instantiate(this.#module, imports);
    this.#instance.exports._initialize();
  }

  /** Calls a function of the engine and returns its answer, or throws it. */
  #answer(name, ...given) {
    const { exports } = this.#instance;
    const failed = exports[name](...given);
    const text = this.#files.text(exports.engine_answer(), exports.engine_answer_bytes());
    if (failed) throw new Error(text.split('\n', 1)[0]);
    return text;
  }

  /** Does the same for a function that takes a request. */
  #asked(name, bytes) {
    const at = this.#instance.exports.engine_request(bytes.length);
    if (at === 0) throw new RangeError('no memory for the request');
    this.#files.bytes(at, bytes.length).set(bytes);
    return this.#answer(name);
  }

  /** Asks the engine when it runs. */
  async #call(name, request) {
    const bytes = encoded(request);
    return this.#run(() => this.#asked(name, bytes));
  }

  /** Returns what work() does with an engine that runs; starts the engine anew after a trap. */
  async #run(work) {
    // While this call waited for a start, another one may have trapped: then there is another start to wait for.
    for (let started; started === undefined || started !== this.#starting;) {
      started = this.#starting ?? this.#start();
      await started;
    }
    try {
      return work();
    } catch (error) {
      if (error.constructor === Error) throw error;
      const lost = this.#hasModel ? '; load the model again' : '';
      this.#hasModel = false;
      await this.#start();
      // An exception that leaves the engine has no text of its own; some browsers give it one.
      const cause = error instanceof WebAssembly.Exception ? 'no memory left' : error.message;
      throw new Error(`the engine failed (${cause}) and was started anew${lost}`);
    }
  }
}
