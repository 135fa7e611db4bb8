// web/tests/native.js: the command beside the engine: the same request as arguments, and what each of them says.
import { spawnSync } from 'node:child_process';

const FLAGS = { dropout_p: '--dropout', weights: '--return-weights', language: '--lang' };

/** The arguments of `attn explain` for a request of Engine.explain. Texts without spaces are cut by the caller. */
export function argumentsOf({ text, to, options = {} }) {
  const list = Array.isArray(text) ? ['--batch', ...text] : [text];
  if (to !== undefined && to !== null) list.push('--to', to);
  if (options.language === undefined) list.push('--lang', 'en');
  for (const [name, value] of Object.entries(options)) {
    const flag = FLAGS[name] ?? '--' + name.replace('_', '-');
    if (value === true) list.push(flag);
    else if (value !== false) list.push(`${flag}=${value}`);
  }
  return list;
}

/** The command of a build folder. */
export class Native {
  constructor(build) { this.command = build + '/attn'; }

  /** What the command prints, and the line of its error. */
  run(list) {
    const env = { ...process.env, LC_ALL: 'C.UTF-8' };
    const made = spawnSync(this.command, list, { encoding: 'utf8', maxBuffer: 1 << 29, env });
    if (made.error) throw made.error;
    return { text: made.stdout, error: made.status === 0 ? null : made.stderr.trim().replace(/^attn: /, '') };
  }
  explain(request, form = ['--json']) { return this.run(['explain', ...argumentsOf(request), ...form]); }
}

/** What a promise gives, in the same form. */
export async function outcome(promise) {
  try {
    return { text: await promise, error: null };
  } catch (error) {
    return { text: '', error: error.message };
  }
}
