# bench/peers/peers.py: other libraries: each turns a case into a call, or says why it cannot.
# Each is imported when it is first used.
import ctypes
import os

import numpy as np


class Refused(Exception):
    """The library has no such call."""


def inputs(case, dtype=np.float32):
    b, hq, hk, tq, tk, d, dv = case.shape
    random = np.random.default_rng(1)
    make = lambda *shape: random.standard_normal(shape, dtype=np.float32).astype(dtype)
    return make(b, hq, tq, d), make(b, hk, tk, d), make(b, hk, tk, dv)


class Torch:
    name = "torch"

    def __init__(self, threads):
        import torch

        self.torch = torch
        self.version = torch.__version__ + (" with AVX-512 in MKL" if "mkl_avx512" in os.environ.get("LD_PRELOAD", "")
                                            else "")
        torch.set_num_threads(threads)

    def call(self, case):
        torch = self.torch
        dtype = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[case.dtype]
        if case.op == "matmul":
            if "packed" in case.fields:
                raise Refused("weights are not laid out before")
            m, n, k = case.number("M", 1), case.number("N", 1), case.number("K", 1)
            layout = case.fields.get("layout", "nn")
            a = (torch.randn(k, m).to(dtype).t() if layout == "tn" else torch.randn(m, k).to(dtype))
            b = (torch.randn(n, k).to(dtype).t() if layout == "nt" else torch.randn(k, n).to(dtype))
            return lambda: torch.mm(a, b)
        if case.op in ("softmax", "layer_norm", "gelu", "gelu_tanh"):
            x = torch.randn(case.number("rows", 1), case.number("N", 1)).to(dtype)
            functional = torch.nn.functional
            w = torch.ones(x.shape[1], dtype=dtype)
            return {"softmax": lambda: torch.softmax(x, -1),
                    "layer_norm": lambda: functional.layer_norm(x, (x.shape[1],), w, w),
                    "gelu": lambda: functional.gelu(x),
                    "gelu_tanh": lambda: functional.gelu(x, approximate="tanh")}[case.op]
        if not case.op.startswith("attention"):
            raise Refused("no such op")
        b, hq, hk, tq, tk, _, _ = case.shape
        mask = None
        others = set(case.fields) - {"B", "Hq", "Hk", "Tq", "Tk", "D", "Dv", "mask", "idle_us"}
        if case.mask == "bool":
            mask = torch.rand(tq, tk) < 0.75
        elif case.fields.get("bias") == "key":
            mask = torch.zeros(b, 1, 1, tk, dtype=dtype)
            mask[..., tk - tk // 8:] = float("-inf")
            others -= {"bias"}
        elif case.fields.get("lengths") == "keys":
            ends = torch.tensor([tk - n * tk // (2 * b) for n in range(b)])
            mask = (torch.arange(tk) < ends[:, None])[:, None, None, :]
            others -= {"lengths"}
        elif case.mask.startswith("causal&window(256"):
            i, j = torch.arange(tq)[:, None], torch.arange(tk)
            mask = (j <= i) & (j >= i - 256)
        elif case.mask not in ("none", "causal"):
            raise Refused(f"mask {case.mask}")
        if others:
            raise Refused(f"{', '.join(sorted(others))}")
        q, k, v = (torch.from_numpy(x).to(dtype) for x in inputs(case))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        options = dict(attn_mask=mask, is_causal=case.mask == "causal", enable_gqa=hq != hk)
        if case.op == "attention_decode":  # caches in turn, as attn does: none of it is in the processor's caches
            each = k.numel() * 2 * k.element_size()
            turns = [(k.clone(), v.clone()) for _ in range(max(1, -(-(1 << 30) // each)))]
            state = {"turn": 0}

            def decode():
                state["turn"] = (state["turn"] + 1) % len(turns)
                return sdpa(q, *turns[state["turn"]], **options)

            return decode
        if case.op == "attention_backward":
            wanted = [x.requires_grad_() for x in (q, k, v)]
            output = sdpa(q, k, v, **options)
            incoming = torch.randn_like(output)
            return lambda: torch.autograd.grad(output, wanted, incoming, retain_graph=True)
        return lambda: sdpa(q, k, v, **options)


class Onnxruntime:
    name = "onnxruntime"

    def __init__(self, threads):
        import onnx
        import onnxruntime

        self.onnx, self.runtime, self.threads, self.version = onnx, onnxruntime, threads, onnxruntime.__version__

    def call(self, case):
        if not case.plain or case.dtype != "f32" or case.op != "attention":
            raise Refused("only plain f32 attention here")
        b, hq, hk, tq, tk, d, dv = case.shape
        if hq != hk or d != dv or tq != tk:
            raise Refused("only one number of heads, one length, D = Dv")
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        joined = [b, tq, hq * d]  # [B, T, H D] is what MultiHeadAttention takes: its fastest form
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], num_heads=hq, domain="com.microsoft",
                                unidirectional=int(case.mask == "causal"))
        graph = helper.make_graph([node], "attention", [helper.make_tensor_value_info(n, kind, joined) for n in "qkv"],
                                  [helper.make_tensor_value_info("o", kind, joined)])
        model = helper.make_model(graph,
                                  opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        # a spinning worker slows the library that runs next
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, x in zip("qkv", inputs(case)):
            binding.bind_cpu_input(name, np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(joined)))
        binding.bind_ortvalue_output("o", self.runtime.OrtValue.ortvalue_from_shape_and_type(joined, np.float32, "cpu"))
        return lambda: session.run_with_iobinding(binding)


class Openvino:
    name = "openvino"

    def __init__(self, threads):
        import openvino

        self.openvino, self.threads, self.version = openvino, threads, openvino.__version__.split("-")[0]

    def call(self, case):
        if not case.plain or case.dtype not in ("f32", "bf16") or case.op != "attention":
            raise Refused("only plain attention in f32 (bf16: as precision hint) here")
        b, hq, hk, tq, tk, d, dv = case.shape
        if hq != hk:
            raise Refused("only one number of heads here")
        openvino, ops = self.openvino, __import__("openvino.opset13", fromlist=["opset13"])
        arrays = inputs(case)
        parameters = [ops.parameter(list(x.shape), np.float32) for x in arrays]
        model = openvino.Model([ops.scaled_dot_product_attention(*parameters, causal=case.mask == "causal")],
                               parameters)
        settings = {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": case.dtype}
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        for n, x in enumerate(arrays):
            request.set_input_tensor(n, openvino.Tensor(x, shared_memory=True))
        return request.infer


class Onednn:
    name = "onednn"

    def __init__(self, threads):
        import native

        self.library, self.threads = native.load("onednn_product", "-ldnnl", "-fopenmp"), threads
        self.library.onednn_version.restype = ctypes.c_char_p
        self.library.onednn_make.restype = ctypes.c_void_p
        self.library.onednn_make.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p] + [ctypes.c_int] * 4
        self.library.onednn_call.argtypes = self.library.onednn_free.argtypes = [ctypes.c_void_p]
        self.version = self.library.onednn_version().decode()

    def call(self, case):
        if case.op != "matmul" or case.dtype not in ("f32", "bf16"):
            raise Refused("only products in f32 and bf16 here")
        layout, packed = case.fields.get("layout", "nn"), case.number("packed", 0)
        sizes = [case.number(name, 1) for name in ("M", "N", "K")]
        product = self.library.onednn_make(self.threads, case.dtype == "bf16", layout.encode(), packed, *sizes)
        if not product:
            raise Refused("oneDNN has no such product on this processor")
        keep = Owned(product, self.library.onednn_free)
        return lambda: self.library.onednn_call(keep.pointer)


class Owned:
    """A pointer that is freed with its last user."""

    def __init__(self, pointer, free):
        self.pointer, self.free = pointer, free

    def __del__(self):
        self.free(self.pointer)


ALL = [Torch, Onnxruntime, Openvino, Onednn]
