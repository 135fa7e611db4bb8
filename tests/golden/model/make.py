# tests/golden/model/make.py: writes the figures of this folder with PyTorch 2.13.0 (CPU) and transformers 5.23.0: twenty training
# steps of a GPT, rotary embedding, and tiny checkpoints of GPT-2, Llama, Mistral and Qwen with their logits.
import json
import pathlib
import sys

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "bench" / "peers"))
from gpt import GPT  # noqa: E402

torch.set_num_threads(1)


def values(x):
    return {"dtype": str(x.dtype)[6:], "shape": list(x.shape), "values": [float(f"{v:.9g}") for v in x.flatten().tolist()]}


def rotary():
    """Frequencies, tables and rotated rows."""
    cases = []
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    for dim, theta, scaling in ((8, 10000.0, None), (2, 10000.0, None), (24, 500000.0, scaled)):
        config = LlamaConfig(hidden_size=4 * dim, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": theta} | (scaling or {}))
        module = LlamaRotaryEmbedding(config)
        positions = torch.tensor([[0, 1, 2, 63, 900]])
        x = torch.randn(1, 2, 5, dim)
        cos, sin = module(x, positions)
        cases.append({"dim": dim, "theta": theta, "scaling": scaling, "positions": positions[0].tolist(), "frequencies": values(module.inv_freq),
                      "cos": values(cos[0, :, :dim // 2]), "sin": values(sin[0, :, :dim // 2]), "x": values(x), "y": values(apply_rotary_pos_emb(x, x, cos, sin)[0])})
    (HERE / "rotary.json").write_text(json.dumps(cases) + "\n")


def steps():
    """Losses before each of twenty AdamW steps on counting by 1, 2 or 3. Weights and batches are torch's numbers after manual_seed(1337)."""
    torch.manual_seed(1337)
    model = GPT("nano", 65)
    sums = {name: weight.detach().double().abs().sum().item() for name, weight in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    losses = []
    for _ in range(20):
        first, stride = torch.randint(0, 65, (12, 1)), torch.randint(1, 4, (12, 1))
        rows = (first + stride * torch.arange(65)) % 65
        loss = model.loss(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    (HERE / "nano_steps.json").write_text(json.dumps({"torch": torch.__version__.split("+")[0], "seed": 1337, "vocab_size": 65, "batch": 12,
                                                      "sum_of_magnitudes": sums, "losses": losses}, indent=1) + "\n")


def checkpoint(name, model):
    """The folder as transformers saves it, and the logits of some ids, with their error against the model in float64."""
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():  # biases and norms too, so that each is seen
            weight.add_(torch.randn_like(weight) * 0.3)
    folder = HERE / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, model.config.vocab_size, (2, 11))
    with torch.no_grad():
        logits = model.eval()(ids).logits
        truth = model.double()(ids).logits
    record = {"ids": ids.tolist(), "logits": values(logits), "torch_error_vs_float64": (logits.double() - truth).abs().max().item()}
    (folder / "logits.json").write_text(json.dumps(record) + "\n")


steps()
torch.manual_seed(1)
rotary()
checkpoint("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0)))
llama = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0}
checkpoint("llama", LlamaForCausalLM(LlamaConfig(**llama)))
scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
checkpoint("llama3", LlamaForCausalLM(LlamaConfig(**llama | {"head_dim": 6, "tie_word_embeddings": True, "attention_bias": True}, rope_parameters=scaling)))
# Eleven ids and windows of four: most rows see fewer tokens than stand before them.
window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
checkpoint("mistral", MistralForCausalLM(MistralConfig(**llama, sliding_window=4)))
checkpoint("qwen2", Qwen2ForCausalLM(Qwen2Config(**llama | window, tie_word_embeddings=True)))
checkpoint("qwen3", Qwen3ForCausalLM(Qwen3Config(**llama, head_dim=6)))
