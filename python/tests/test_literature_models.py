# python/tests/test_literature_models.py: recipes of docs/literature.md in tiny random layers of transformers: Swin,
# Longformer, BigBird, DiffLlama, DeBERTa-v2, Wav2Vec2-Conformer, SAM.
import math

import attn
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from error_rule import assert_as_close_as  # noqa: E402


def heads_of(x, projection, heads):
    """[B, T, C] as [B, H, T, D]."""
    return projection(x).unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def drawn(module):
    """The module with random weights, also where its own initial values are 0."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3)
    return module


def compare(ours, theirs, x, modules, label):
    """The error rule for the output and the gradient of x, the truth by their module in float64."""
    results = []
    for function, dtype in ((ours, torch.float32), (theirs, torch.float32), (theirs, torch.float64)):
        for module in modules:
            module.to(dtype)
        leaf = x.to(dtype).requires_grad_()
        output = function(leaf)
        direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        results.append((output, torch.autograd.grad(output, leaf, direction)[0]))
    for name, *three in zip(("output", "gradient"), *results):
        assert_as_close_as(*three, f"{label}, {name}")


@pytest.mark.parametrize("shift", [0, 2])
def test_swin(shift, one_thread):
    from transformers import SwinConfig
    from transformers.models.swin import modeling_swin as swin

    torch.manual_seed(1)
    height, width, size, heads = 8, 12, 4, 2
    config = SwinConfig(embed_dim=16, window_size=size, attn_implementation="eager", attention_probs_dropout_prob=0.0)
    layer = drawn(swin.SwinLayer(config, 16, (height, width), heads, shift_size=shift)).eval()
    attention = layer.attention

    def theirs(x):
        parts = swin.window_partition(layer.cyclic_shift(x.view(-1, height, width, 16)), size).flatten(1, 2)
        y, _ = attention(parts, layer.get_attn_mask(height, width, x.dtype, x.device))
        y = swin.window_reverse(y.view(-1, size, size, 16), size, height, width)
        return layer.cyclic_shift(y, reverse=True).flatten(1, 2)

    def ours(x):
        y, z = torch.arange(height * width) // width, torch.arange(height * width) % width
        window = (y + size - shift) // size * width + (z + size - shift) // size
        near = [(a[:, None] - a).clamp(1 - size, size - 1) + size - 1 for a in (y, z)]
        table = attention.relative_position_bias.relative_position_bias_table
        bias = table[near[0] * (2 * size - 1) + near[1]].permute(2, 0, 1)
        q, k, v = (heads_of(x, p, heads) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
        return attention.o_proj(joined(attn.attention(q, k, v, mask=attn.Mask.documents(window), bias=bias)))

    compare(ours, theirs, torch.randn(2, height * width, 16), [layer], f"Swin, shift {shift}")


@pytest.mark.parametrize("far", [[], [0, 9]])
def test_longformer(far, one_thread):
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    torch.manual_seed(2)
    config = LongformerConfig(hidden_size=16, num_attention_heads=2, attention_window=[8], num_hidden_layers=1,
                              attention_probs_dropout_prob=0.0)
    layer = drawn(LongformerSelfAttention(config, 0)).eval()
    is_far = torch.zeros(24, dtype=torch.bool)
    is_far[far] = True

    def theirs(x):
        mask = (is_far * 10000.0).expand(2, 24).to(x.dtype)
        return layer(x, mask, mask < 0, mask > 0, bool(far))[0]

    def ours(x):
        q, k, v = (heads_of(x, p, 2) for p in (layer.query, layer.key, layer.value))
        y = attn.attention(q, k, v, mask=attn.Mask.window(4, 4) | attn.Mask.attend(is_far[None]))
        q, k, v = (heads_of(x, p, 2) for p in (layer.query_global, layer.key_global, layer.value_global))
        return joined(torch.where(is_far[:, None], attn.attention(q, k, v), y))

    compare(ours, theirs, torch.randn(2, 24, 16), [layer], f"Longformer, {len(far)} global tokens")


def test_big_bird(one_thread):
    from transformers import BigBirdConfig, BigBirdModel
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

    torch.manual_seed(3)
    blocks, size, heads = 16, 4, 2
    tokens = blocks * size
    config = BigBirdConfig(hidden_size=16, num_attention_heads=heads, block_size=size, num_random_blocks=3,
                           max_position_embeddings=tokens)
    layer = drawn(BigBirdBlockSparseAttention(config, seed=5)).train()   # without random blocks in eval()
    blocked, band, of_rows, of_keys = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(2, tokens), size)
    np.random.seed(5)
    plan = layer._get_rand_attn_plan(tokens, size, 3)
    random = torch.tensor(np.stack(layer._bigbird_block_rand_mask_with_head(tokens, tokens, size, size, heads, *plan)))
    # their list has block 0 for no block, and then counts it again: only rows with random blocks are compared
    drawn_blocks = torch.ones(blocks, dtype=torch.bool)
    drawn_blocks[1:-1] = (random > 0).all(-1).all(0)
    assert drawn_blocks.sum() > 8

    def theirs(x):
        masks = (m.to(x.dtype) for m in (band, of_rows, of_keys, blocked, blocked))
        return layer(x, *masks)[0].view(2, blocks, size, 16)[:, drawn_blocks]

    def ours(x):
        own = torch.arange(1, blocks - 1)[:, None]
        near = torch.cat((own - 1, own, own + 1, torch.zeros_like(own), torch.full_like(own, blocks - 1)), 1)
        chosen = torch.cat((near.expand(heads, -1, -1), random), 2)
        everything = torch.arange(blocks).expand(heads, 1, blocks)
        lists = [torch.nn.functional.pad(chosen, (0, blocks - chosen.shape[2]), value=-1)]
        mask = attn.Mask.blocks(torch.cat((everything, *lists, everything), 1)[None], size)
        q, k, v = (heads_of(x, p, heads) for p in (layer.query, layer.key, layer.value))
        return joined(attn.attention(q, k, v, mask=mask)).view(2, blocks, size, 16)[:, drawn_blocks]

    compare(ours, theirs, torch.randn(2, tokens, 16), [layer], "BigBird")


def test_differential_llama(one_thread):
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama import modeling_diffllama as model

    torch.manual_seed(4)
    config = DiffLlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1,
                             attn_implementation="eager")
    layer = drawn(model.DiffLlamaAttention(config, 0)).eval()
    rotary = model.DiffLlamaRotaryEmbedding(config)

    def theirs(x):
        places = rotary(x, torch.arange(24)[None])
        return layer(x, places, torch.full((24, 24), -math.inf, dtype=x.dtype).triu(1)[None, None])[0]

    def ours(x):
        q, k, v = (p(x).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
        q, k = model.apply_rotary_pos_emb(q, k, *rotary(x, torch.arange(24)[None]))
        values = torch.cat([half.repeat(1, 2, 1, 1) for half in v.chunk(2, 1)], -1)     # Dv = 2 D
        first, second = attn.attention(q, k, values, mask="causal").chunk(2, 1)
        factor = (torch.exp((layer.lambda_q1 * layer.lambda_k1).sum()) - torch.exp(
            (layer.lambda_q2 * layer.lambda_k2).sum()) + layer.lambda_init)
        return layer.o_proj(joined((1 - layer.lambda_init) * layer.groupnorm(first - factor * second)))

    compare(ours, theirs, torch.randn(2, 24, 32), [layer], "DiffLlama")


@pytest.mark.parametrize("buckets, shared", [(8, True), (8, False), (-1, False)])
def test_deberta(buckets, shared, one_thread):
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    torch.manual_seed(5)
    config = DebertaV2Config(hidden_size=16, num_attention_heads=2, relative_attention=True, position_buckets=buckets,
                             max_relative_positions=20, pos_att_type=["c2p", "p2c"], share_att_key=shared,
                             attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    layer = drawn(DisentangledSelfAttention(config)).eval()
    span = buckets if buckets > 0 else 20
    table = torch.nn.Embedding(2 * span, 16)

    def theirs(x):
        y = layer(x, torch.ones(2, 1, 40, 40, dtype=torch.bool), rel_embeddings=table.weight)
        return y[0] if isinstance(y, tuple) else y

    def ours(x):
        q, k, v = (heads_of(x, p, 2) for p in (layer.query_proj, layer.key_proj, layer.value_proj))
        of_keys, of_queries = (layer.key_proj, layer.query_proj) if shared else (
            layer.pos_key_proj, layer.pos_query_proj)
        r_k, r_q = (heads_of(table.weight[None], p, 2)[0] for p in (of_keys, of_queries))
        near = (attn.RelativeIndex.log_buckets(span, 20) if buckets > 0
                else attn.RelativeIndex.distance(span - 1, span).reversed())
        bias = attn.Bias.relative_product(r_k, near) + attn.Bias.relative_product(r_q, near, of_keys=True)
        return joined(attn.attention(q, k, v, bias=bias, scale=1 / math.sqrt(3 * 8)))

    compare(ours, theirs, torch.randn(2, 40, 16), [layer, table], f"DeBERTa, {buckets} buckets")


def test_conformer(one_thread):
    from transformers import Wav2Vec2ConformerConfig
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as model

    torch.manual_seed(6)
    config = Wav2Vec2ConformerConfig(hidden_size=16, num_attention_heads=2, position_embeddings_type="relative",
                                     attention_dropout=0.0)
    layer = drawn(model.Wav2Vec2ConformerSelfAttention(config)).eval()
    positions = model.Wav2Vec2ConformerRelPositionalEmbedding(config)(torch.randn(2, 24, 16))

    def theirs(x):
        return layer(x, relative_position_embeddings=positions.to(x.dtype))[0]

    def ours(x):
        q, k, v = (heads_of(x, p, 2) for p in (layer.linear_q, layer.linear_k, layer.linear_v))
        table = heads_of(positions.to(x.dtype), layer.linear_pos, 2)[0]    # T - 1 ... 1 - T: the row minus the key
        u, w = layer.pos_bias_u[:, None], layer.pos_bias_v[:, None]
        bias = attn.Bias.relative_product(table, attn.RelativeIndex.distance(23, 23), operand=q + w)
        return layer.linear_out(joined(attn.attention(q + u, k, v, bias=bias)))

    compare(ours, theirs, torch.randn(2, 24, 16), [layer], "Wav2Vec2-Conformer")


def test_sam(one_thread):
    from transformers import SamVisionConfig
    from transformers.models.sam.modeling_sam import SamVisionAttention

    torch.manual_seed(7)
    height, width = 5, 7
    config = SamVisionConfig(hidden_size=16, num_attention_heads=2, use_rel_pos=True, attention_dropout=0.0,
                             image_size=8, patch_size=1, attn_implementation="eager")
    layer = drawn(SamVisionAttention(config, window_size=0))
    layer.rel_pos_h = torch.nn.Parameter(torch.randn(2 * height - 1, 8))
    layer.rel_pos_w = torch.nn.Parameter(torch.randn(2 * width - 1, 8))
    layer.eval()

    def theirs(x):
        return layer(x.unflatten(1, (height, width)))[0].flatten(1, 2)

    def ours(x):
        q, k, v = layer.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        product = attn.Bias.relative_product
        bias = (product(layer.rel_pos_h, attn.RelativeIndex.picture_rows(height, width), scale=1)
                + product(layer.rel_pos_w, attn.RelativeIndex.picture_columns(width), scale=1))
        return layer.proj(joined(attn.attention(q, k, v, bias=bias)))

    compare(ours, theirs, torch.randn(2, height * width, 16), [layer], "SAM")
