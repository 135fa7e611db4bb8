# python/attn/integrations/__init__.py: attn inside the tools people run.
"""attn inside other tools: `attn.integrations.transformers`, `attn.integrations.onnx`. Each needs its tool installed."""
