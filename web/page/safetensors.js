// web/page/safetensors.js: reads the tensors of a safetensors file as lists of numbers.
import {say} from './words.js';

const MOST = 1 << 22;  // numbers of one tensor

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * fraction / 1024);
}
const WORD = new DataView(new ArrayBuffer(4));
function bfloat(bits) {
  WORD.setUint32(0, bits << 16);
  return WORD.getFloat32(0);
}
const READERS = {
  F64: [8, (view, at) => view.getFloat64(at, true)], F32: [4, (view, at) => view.getFloat32(at, true)],
  F16: [2, (view, at) => half(view.getUint16(at, true))], BF16: [2, (view, at) => bfloat(view.getUint16(at, true))],
};

/**
 * Reads a safetensors file.
 * @param {Uint8Array} bytes
 * @returns {Record<string, {shape: number[], data: number[]}>} the tensors of real numbers
 */
export function readSafetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = bytes.length >= 8 ? Number(view.getBigUint64(0, true)) : Infinity;
  if (!(8 + length <= bytes.length)) throw new Error(say('safetensors_header'));
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  } catch {
    throw new Error(say('safetensors_json'));
  }
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    const reader = READERS[entry?.dtype], [from, to] = entry?.data_offsets || [];
    if (name === '__metadata__' || !reader) continue;
    const count = entry.shape.reduce((all, dim) => all * dim, 1), [size, read] = reader;
    if (!(from >= 0 && to - from === count * size && 8 + length + to <= bytes.length && count <= MOST))
      throw new Error(say('safetensors_size', {name, shape: entry.shape}));
    tensors[name] = {shape: entry.shape, data: Array.from({length: count}, (_, n) =>
      read(view, 8 + length + from + n * size))};
  }
  return tensors;
}
