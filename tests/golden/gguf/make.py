# tests/golden/gguf/make.py: writes blocks.json with PyPI's gguf 0.19.0: random blocks of each tensor type, with scales
# of every kind, and the numbers that they stand for, as hex.
import json
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
# Where the f16 scales of a block are; the rest may be any bytes.
SCALES = {"F16": [0], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}
# 0, -0, the least subnormal, the largest, the least normal, the largest number, infinities, a NaN, 1, -2
HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00, 0xC000]


def blocks_of(name, count, random):
    """Random blocks; of two thirds the scales are special ones."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in SCALES.get(name, []):
        scales = random.choice(np.array(HALVES, dtype=np.uint16), count)
        chosen = random.random(count) < 2 / 3
        blocks[chosen, at : at + 2] = scales.view(np.uint8).reshape(count, 2)[chosen]
    return blocks


def main():
    random = np.random.default_rng(5)
    record = {}
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"):
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_of(name, 64 if gguf.GGML_QUANT_SIZES[kind][0] == 1 else 16, random)
        with np.errstate(all="ignore"):
            values = gguf.dequantize(blocks, kind)
        record[name] = {"blocks": blocks.tobytes().hex(), "values": values.astype(np.float32).tobytes().hex()}
    (HERE / "blocks.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
