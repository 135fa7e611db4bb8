# tests/golden/model/make_families.py: writes tiny checkpoints of Gemma 2 and 3, Phi-3 and SmolLM 3 with their logits,
# and the frequencies and rotations of every kind of rotary embedding, with PyTorch 2.13.0 (CPU), transformers 5.24.0.
import json
import pathlib
import sys

import torch
from transformers import LlamaConfig, Qwen2VLTextConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as partial
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "python" / "tests"))
import families  # noqa: E402

torch.set_num_threads(1)
values = families.values


def frequencies():
    """The frequencies of each kind, for texts of several lengths, and the factor of the tables."""
    kinds = {"linear": families.LINEAR, "dynamic": {"rope_type": "dynamic", "factor": 3.0, **families.ROPE},
             "YaRN": families.YARN | {"original_max_position_embeddings": 64},
             "YaRN, not truncated": families.YARN | {"truncate": False, "beta_fast": 6.0, "beta_slow": 2.0,
                                                     "attention_factor": 1.25},
             "longrope": families.longrope(12), "llama3": families.LLAMA3}
    for name, rope in kinds.items():
        config = LlamaConfig(hidden_size=96, num_attention_heads=4, max_position_embeddings=64,
                             rope_parameters=dict(rope))
        for tokens in (1, 16, 17, 64, 65, 300):
            found, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=tokens)
            yield {"name": name, "dim": 24, "scaling": rope, "context": 64, "tokens": tokens, "factor": factor,
                   "frequencies": values(found)}


def rotations():
    """Rows rotated by given positions: neighbours, a part of a head, three sections, the two axes of a picture."""
    x, positions = torch.randn(1, 2, 5, 12), torch.tensor([[0, 1, 2, 63, 900]])
    inverse = 1.0 / (10000.0 ** (torch.arange(0, 12, 2).float() / 12))
    angles = positions[..., None].float() * inverse
    pairs = torch.repeat_interleave(angles, 2, dim=-1)
    yield {"name": "neighbours", "dim": 12, "positions": positions[0].tolist(),
           "y": values(cohere.apply_rotary_pos_emb(x, x, pairs.cos(), pairs.sin())[0]), "x": values(x)}
    part = positions[..., None].float() / (10000.0 ** (torch.arange(0, 8, 2).float() / 8))
    part = torch.cat((part, part), -1)
    yield {"name": "a part", "dim": 8, "positions": positions[0].tolist(), "x": values(x),
           "y": values(partial(x, x, part.cos(), part.sin())[0])}
    three = torch.tensor([[0, 1, 2, 63, 900], [0, 7, 2, 5, 30], [4, 1, 9, 2, 11]])
    rope = families.ROPE | {"rope_type": "default", "mrope_section": [3, 2, 1]}
    config = Qwen2VLTextConfig(hidden_size=48, num_attention_heads=4, rope_parameters=rope)
    module = qwen2_vl.Qwen2VLRotaryEmbedding(config)
    yield {"name": "sections", "dim": 12, "sections": [3, 2, 1], "positions": three.tolist(), "x": values(x),
           "y": values(qwen2_vl.apply_rotary_pos_emb(x, x, *module(x, three[:, None]))[0])}
    two, axis = three[1:], 1.0 / (10000.0 ** (torch.arange(0, 6, 2).float() / 6))
    grid = (two.T[..., None].float() * axis).flatten(1)  # [T, 2 * 3]: rows, then columns
    grid = torch.cat((grid, grid), -1)
    rows = x[0].transpose(0, 1)  # [T, H, D]
    rotated = qwen2_vl.apply_rotary_pos_emb_vision(rows, rows, grid.cos(), grid.sin())[0]
    yield {"name": "axes", "dim": 12, "sections": [3, 3], "axial": True, "positions": two.tolist(), "x": values(x),
           "y": values(rotated.transpose(0, 1)[None])}


torch.manual_seed(1)
kinds = {"frequencies": list(frequencies()), "rotations": list(rotations())}
(HERE / "rotary_kinds.json").write_text(json.dumps(kinds) + "\n")
for name in ("gemma2", "gemma3", "phi3", "smollm3"):
    families.write(HERE / name, families.FAMILIES[name]())
