// web/engine/files.js: the functions of WASI that the engine imports: read-only files in memory, output to the console.

const NOT_OPEN = 8, INVALID = 28, NOT_THERE = 44, NOT_SUPPORTED = 52;
const FOLDER = 3, FILE = 4, ROOT = 3;

/** A read-only file system: `files` maps names without a leading slash to Uint8Arrays. */
export class Files {
  /** @param {() => WebAssembly.Memory} memory  known after the instance exists */
  constructor(memory) {
    this.memory = memory;
    this.files = new Map();
    this.open = new Map();
    this.next = ROOT + 1;
    this.line = '';
  }

  /** The imports of a module, whatever it asks for: what is not known here answers that it is not supported. */
  imports(module) {
    const imports = {};
    for (const { module: group, name } of WebAssembly.Module.imports(module)) {
      if (group !== 'wasi_snapshot_preview1') continue;
      imports[name] = typeof this[name] === 'function' ? this[name].bind(this) : () => NOT_SUPPORTED;
    }
    return { wasi_snapshot_preview1: imports };
  }

  // --- memory -------------------------------------------------------------------------------------------

  view() { return new DataView(this.memory().buffer); }
  bytes(at, size) { return new Uint8Array(this.memory().buffer, at, size); }
  text(at, size) { return new TextDecoder().decode(this.bytes(at, size)); }
  put32(at, value) { this.view().setUint32(at, value, true); }
  put64(at, value) { this.view().setBigUint64(at, BigInt(value), true); }

  /** Calls use(address, size) for each piece of memory in a list of them. */
  pieces(list, count, use) {
    for (let i = 0; i < count; ++i) {
      const at = list + 8 * i;
      use(this.view().getUint32(at, true), this.view().getUint32(at + 4, true));
    }
  }

  find(path) {
    const name = path.replace(/^[./]+/, '').replace(/\/+$/, '');
    if (this.files.has(name)) return { data: this.files.get(name), type: FILE };
    const isFolder = name === '' || [...this.files.keys()].some((file) => file.startsWith(name + '/'));
    return isFolder ? { data: new Uint8Array(0), type: FOLDER } : null;
  }

  putFacts(at, { data, type }) {
    this.bytes(at, 64).fill(0);
    this.view().setUint8(at + 16, type);
    this.put64(at + 24, 1);  // links
    this.put64(at + 32, data.length);
    return 0;
  }

  read(file, list, count, from) {
    let done = 0;
    this.pieces(list, count, (at, size) => {
      const part = file.data.subarray(from + done, from + done + size);
      this.bytes(at, part.length).set(part);
      done += part.length;
    });
    return done;
  }

  // --- WASI ---------------------------------------------------------------------------------------------

  args_sizes_get(count, size) { return this.environ_sizes_get(count, size); }
  args_get() { return 0; }
  environ_sizes_get(count, size) {
    this.put32(count, 0);
    this.put32(size, 0);
    return 0;
  }
  environ_get() { return 0; }
  clock_time_get(clock, precision, at) {
    this.put64(at, Math.round((performance.timeOrigin + performance.now()) * 1e6));
    return 0;
  }
  clock_res_get(clock, at) {
    this.put64(at, 1000);
    return 0;
  }
  random_get(at, size) {
    this.bytes(at, size).forEach((_, i, bytes) => { bytes[i] = Math.random() * 256; });  // nothing here is a secret
    return 0;
  }
  sched_yield() { return 0; }
  proc_exit(status) { throw new WebAssembly.RuntimeError('exit ' + status); }

  fd_prestat_get(number, at) {
    if (number !== ROOT) return NOT_OPEN;
    this.put32(at, 0);
    this.put32(at + 4, 1);
    return 0;
  }
  fd_prestat_dir_name(number, at, size) {
    if (size > 0) this.bytes(at, 1)[0] = '/'.charCodeAt(0);
    return 0;
  }
  path_open(folder, lookup, path, size, flags, rights, inherited, mode, result) {
    const file = this.find(this.text(path, size));
    if (file === null) return NOT_THERE;
    this.open.set(this.next, { ...file, at: 0 });
    this.put32(result, this.next++);
    return 0;
  }
  path_filestat_get(folder, flags, path, size, at) {
    const file = this.find(this.text(path, size));
    return file === null ? NOT_THERE : this.putFacts(at, file);
  }
  fd_filestat_get(number, at) {
    const file = number === ROOT ? this.find('') : this.open.get(number);
    return file === undefined ? NOT_OPEN : this.putFacts(at, file);
  }
  fd_fdstat_get(number, at) {
    const type = number < ROOT ? 2 : number === ROOT ? FOLDER : this.open.get(number)?.type;
    if (type === undefined) return NOT_OPEN;
    this.bytes(at, 24).fill(0);
    this.view().setUint8(at, type);
    this.bytes(at + 8, 16).fill(0xff);  // all rights
    return 0;
  }
  fd_fdstat_set_flags() { return 0; }
  fd_seek(number, offset, whence, result) {
    const file = this.open.get(number);
    if (file === undefined) return NOT_OPEN;
    const to = Number(offset) + [0, file.at, file.data.length][whence];
    if (!(to >= 0)) return INVALID;
    file.at = to;
    this.put64(result, to);
    return 0;
  }
  fd_read(number, list, count, result) {
    const file = this.open.get(number);
    if (file === undefined) return NOT_OPEN;
    const done = this.read(file, list, count, file.at);
    file.at += done;
    this.put32(result, done);
    return 0;
  }
  fd_pread(number, list, count, offset, result) {
    const file = this.open.get(number);
    if (file === undefined) return NOT_OPEN;
    this.put32(result, this.read(file, list, count, Number(offset)));
    return 0;
  }
  fd_close(number) {
    this.open.delete(number);
    return 0;
  }
  /** Lines go to the console; a program of the tests prints them. */
  fd_write(number, list, count, result) {
    let done = 0;
    this.pieces(list, count, (at, size) => {
      this.line += this.text(at, size);
      done += size;
    });
    const end = this.line.lastIndexOf('\n');
    if (end >= 0) {
      console.log(this.line.slice(0, end));
      this.line = this.line.slice(end + 1);
    }
    this.put32(result, done);
    return 0;
  }
}
