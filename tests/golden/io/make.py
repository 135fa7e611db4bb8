# tests/golden/io/make.py: writes files.json, small files as hex, with the numpy 2.4.6 and safetensors 0.8.0 of Python.
import io
import json
import pathlib

import numpy as np
from safetensors.numpy import save


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue().hex()


tensors = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "a": np.array([1.5, -2, 3e300]),
    "h": np.array([[1, 2], [0.5, -65504]], dtype=np.float16),
    "n": np.array(7, dtype=np.int64),
    "i": np.array([-1, 2, 3], dtype=np.int32),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.float32),
    "中文\n": np.ones(2, dtype=np.float32),
}
a = tensors["b.weight"]
files = {
    "safetensors_numpy": save(tensors, {"made by": 'numpy "2" 中'}).hex(),
    "safetensors_plain": save({"x": np.array([[1, 2], [3, 4]], dtype=np.float32)}).hex(),
    "safetensors_none": save({}).hex(),
    "npy_f32": npy(a),
    "npy_f64_fortran": npy(np.asfortranarray(a.astype(np.float64))),
    "npy_f16_rank0": npy(np.array(1.5, dtype=np.float16)),
    "npy_i64_rank1": npy(np.array([1, -2, 3])),
    "npy_i32_big_endian": npy(np.array([[1, -2], [3, 70000]], dtype=">i4")),
    "npy_f64_big_endian": npy(np.array([1.5, -2], dtype=">f8")),
    "npy_bool": npy(np.array([[True, False], [False, True]])),
    "npy_f32_v2": npy(a, version=(2, 0)),
    "npy_f32_v3": npy(a, version=(3, 0)),
    "npy_empty": npy(np.zeros((0, 4), dtype=np.float32)),
    "npy_f32_rank8": npy(np.ones((1, 1, 1, 2, 1, 1, 1, 1), dtype=np.float32)),
    "npy_u8": npy(np.array([1], dtype=np.uint8)),
    "npy_c64": npy(np.array([1j], dtype=np.complex64)),
    "npy_records": npy(np.zeros(1, dtype=[("a", "<f4")])),
    "npy_void": npy(np.zeros(1, dtype="V2")),
}
pathlib.Path(__file__).with_name("files.json").write_text(json.dumps(files, indent=0) + "\n")
