# tests/consumer/call.py: call.py LIBRARY: attn through its C header from another language, ctypes of a bare Python.
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
i64, i32, real, pointer = ctypes.c_int64, ctypes.c_int32, ctypes.c_double, ctypes.c_void_p


class Strides(ctypes.Structure):
    _fields_ = [(name, i64) for name in ("batch", "head", "row")]


class ScoreStrides(ctypes.Structure):
    _fields_ = [(name, i64) for name in ("batch", "head", "row", "key")]


class Attention(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, i64) for name in ("batch", "q_heads", "k_heads", "v_heads", "q_rows", "k_rows", "dim", "value_dim")]
        + [(name, i32) for name in ("element", "causal", "bottom_right", "top_left")]
        + [(name, pointer) for name in ("q", "k", "v", "output", "logsumexp", "max", "sum")]
        + [(name, Strides) for name in ("q_strides", "k_strides", "v_strides", "output_strides")]
        + [("scale", real), ("softcap", real), ("temperature", real), ("sinks", pointer)]
        + [("window_left", i64), ("window_right", i64), ("mask", pointer), ("mask_strides", ScoreStrides)]
        + [("bias", pointer), ("bias_strides", ScoreStrides), ("bias_element", i32), ("reserved", i32)]
        + [(name, pointer) for name in ("query_lengths", "key_lengths", "key_start", "query_start")]
        + [(name, pointer) for name in ("totals_max", "totals_sum", "totals_output")]
        + [("begins", i32), ("ends", i32), ("first_key", i64), ("row_block_step", i64)]
    )


library.attn_status_text.restype = ctypes.c_char_p
library.attn_version.restype = ctypes.c_char_p
library.attn_workspace_bytes.restype = ctypes.c_size_t
library.attn_forward.argtypes = [ctypes.POINTER(Attention), pointer, ctypes.c_size_t, pointer]

call = Attention()
status = library.attn_attention_init(ctypes.byref(call), ctypes.c_size_t(ctypes.sizeof(call)))
assert status == 0, library.attn_status_text(status)
q, k, v = (ctypes.c_float * 2)(1, 2), (ctypes.c_float * 4)(3, 4, 3, 4), (ctypes.c_float * 4)(1, 10, 3, 30)
output = (ctypes.c_float * 2)()
call.q_rows, call.k_rows, call.dim, call.value_dim = 1, 2, 2, 2
call.q, call.k, call.v, call.output = (ctypes.addressof(x) for x in (q, k, v, output))
size = library.attn_workspace_bytes(ctypes.byref(call), None)
workspace = ctypes.create_string_buffer(size)
status = library.attn_forward(ctypes.byref(call), ctypes.addressof(workspace), size, None)
assert status == 0, library.attn_status_text(status)
assert list(output) == [2, 20], list(output)
print(f"attn {library.attn_version().decode()} through ctypes: {list(output)}")
