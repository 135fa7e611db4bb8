# python/attn/torch/__init__.py: attn for PyTorch: its tensors, with gradients.
"""attn for PyTorch."""
