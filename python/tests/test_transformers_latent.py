# python/tests/test_transformers_latent.py: DeepSeek-V2 and V3 of transformers by attn: eager's results, padded and
# cached, generation, gradients; a layer of theirs against attn.latent_attention.
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn
import attn.integrations.transformers as integration
from error_rule import assert_as_close_as
from test_transformers_models import truth_of

integration.register()
TYPES = ("deepseek_v2", "deepseek_v3")


def pair(model_type):
    """The same model by eager and by attn, with keys of 24 and values of 16 elements."""
    models = []
    for implementation in ("eager", "attn"):
        torch.manual_seed(1)
        config = transformers.CONFIG_MAPPING[model_type](
            vocab_size=99, hidden_size=48, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=24, qk_nope_head_dim=16,
            qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
            n_group=1, topk_group=1, first_k_dense_replace=1, max_position_embeddings=256)
        config._experts_implementation = "eager"  # the grouped product of others knows no float64
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
        models.append(model.eval())
    models[1].load_state_dict(models[0].state_dict())
    return models


def tokens(batch, length):
    return torch.randint(1, 97, (batch, length), generator=torch.Generator().manual_seed(2))


def logits(model, given):
    with torch.no_grad():
        return {"logits": model(**given).logits}


@pytest.mark.parametrize("padded", (False, True))
@pytest.mark.parametrize("model_type", TYPES)
def test_logits_are_eagers(model_type, padded):
    eager, ours = pair(model_type)
    mask = torch.ones(2, 70, dtype=torch.long)
    if padded:
        mask[1, :9] = 0
    given = dict(input_ids=tokens(2, 70), attention_mask=mask)
    theirs, mine, truth = logits(eager, given), logits(ours, given), truth_of(eager, given, logits)
    seen = mask.bool()
    assert_as_close_as(mine["logits"][seen], theirs["logits"][seen], truth["logits"][seen])


@pytest.mark.parametrize("model_type", TYPES)
def test_generation_is_eagers(model_type):
    eager, ours = pair(model_type)
    ids, mask = tokens(2, 11), torch.ones(2, 11, dtype=torch.long)
    mask[0, :4] = 0
    settings = dict(max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0)
    expected = eager.generate(ids, attention_mask=mask, **settings)
    assert torch.equal(ours.generate(ids, attention_mask=mask, **settings), expected)


def gradients(model, given):
    model.zero_grad()
    model(**given, labels=given["input_ids"]).loss.backward()
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


@pytest.mark.parametrize("model_type", TYPES)
def test_gradients_are_eagers(model_type):
    eager, ours = pair(model_type)
    given = dict(input_ids=tokens(2, 40))
    truth = truth_of(eager, given, gradients)
    theirs, mine = gradients(eager, given), gradients(ours, given)
    assert theirs.keys() == mine.keys() == truth.keys()
    for name, true in truth.items():
        assert_as_close_as(mine[name], theirs[name], true, name)


@pytest.mark.parametrize("form", ("expanded", "absorbed"))
def test_a_layer_is_latent_attention(form, monkeypatch):
    """Queries, latents and up-projections of a layer of DeepSeek-V3, as the layer itself computes them."""
    eager, _ = pair("deepseek_v3")
    layer, seen = eager.model.layers[1].self_attn, {}
    expand = layer.expand_kv

    def expanding(latent, rope):
        seen.update(latent=latent[:, 0], k_rope=rope[:, 0])
        return expand(latent, rope)

    def attending(module, query, key, value, mask, **options):
        seen.update(query=query, output=integration.attention(module, query, key, value, mask, **options)[0])
        return seen["output"], None

    monkeypatch.setattr(layer, "expand_kv", expanding)
    transformers.AttentionInterface.register("latent_layer", attending)
    eager.set_attn_implementation("latent_layer")
    with torch.no_grad():
        eager(tokens(2, 30))
        nope, heads = layer.qk_nope_head_dim, layer.num_heads
        w_uk, w_uv = layer.kv_b_proj.weight.view(heads, -1, layer.kv_lora_rank).split([nope, layer.v_head_dim], 1)
        ours = attn.latent_attention(seen["query"][..., :nope], seen["query"][..., nope:], seen["latent"],
                                     seen["k_rope"], w_uk, w_uv, form=form, scale=layer.scaling, mask="causal")
    theirs = seen["output"].transpose(1, 2)
    assert (ours - theirs).abs().max() <= 16 * torch.finfo(torch.float32).eps * theirs.abs().max()
