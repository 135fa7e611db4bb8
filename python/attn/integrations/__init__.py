# python/attn/integrations/__init__.py: connects attn to other tools.
"""attn inside other tools: `attn.integrations.transformers`, `attn.integrations.onnx`.
Each needs its tool installed."""
