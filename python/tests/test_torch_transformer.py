# python/tests/test_torch_transformer.py: attn.torch's Transformer, its encoder, decoder and layers against torch's own.
import copy
import io
import random

import pytest

torch = pytest.importorskip("torch")

import attn.torch

pytestmark = pytest.mark.usefixtures("one_thread")
N, HEADS, E = 3, 2, 8


def layer_arguments(r):
    return dict(dim_feedforward=r.choice([4, 12]), dropout=0.0, activation=r.choice(["relu", "gelu", torch.tanh]),
                layer_norm_eps=r.choice([1e-5, 1e-3]), batch_first=r.random() < 0.6, norm_first=r.random() < 0.4,
                bias=r.random() < 0.8)


def build(package, r, kind):
    """A module of torch.nn or attn.torch, with arguments that `r` draws."""
    arguments = layer_arguments(r)
    if kind == "transformer":
        return package.Transformer(E, HEADS, num_encoder_layers=2, num_decoder_layers=1, **arguments)
    side = "Encoder" if kind.startswith("encoder") else "Decoder"
    layer = getattr(package, f"Transformer{side}Layer")(E, HEADS, **arguments)
    if kind.endswith("layer"):
        return layer
    return getattr(package, f"Transformer{side}")(layer, 2, torch.nn.LayerNorm(E) if r.random() < 0.5 else None)


def mask(r, generator, rows, keys):
    kinds = ["bool", "float", "heads"] + (["causal"] if rows == keys else [])
    kind = r.choice(kinds)
    if kind == "causal":
        return torch.nn.Transformer.generate_square_subsequent_mask(rows)
    if kind == "bool":
        return torch.rand(rows, keys, generator=generator) > 0.6
    return torch.randn(*((rows, keys) if kind == "float" else (N * HEADS, rows, keys)), generator=generator)


def call_of(r, kind, batch_first):
    generator = torch.Generator().manual_seed(r.randrange(1000))
    rows = dict(src=r.choice([3, 4]), tgt=r.choice([2, 5]))
    src, tgt = (torch.randn(*((N, rows[n], E) if batch_first else (rows[n], N, E)), generator=generator) for n in rows)
    names = {"encoder layer": ["src_mask", "src_key_padding_mask"], "encoder": ["mask", "src_key_padding_mask"],
             "transformer": ["src_mask", "src_key_padding_mask", "tgt_mask", "tgt_key_padding_mask", "memory_mask",
                             "memory_key_padding_mask"]}
    given = {}
    for name in names.get(kind, names["transformer"][2:]):
        if r.random() < 0.5:
            continue
        if name.endswith("padding_mask"):
            n = rows["tgt" if name.startswith("tgt") else "src"]
            given[name] = torch.arange(n) >= torch.tensor([[r.choice([n, n - 1, 0])] for _ in range(N)])
        else:
            q, k = {"tgt": ("tgt", "tgt"), "mem": ("tgt", "src")}.get(name[:3], ("src", "src"))
            given[name] = mask(r, generator, rows[q], rows[k])
    inputs = [src] if kind.startswith("encoder") else [tgt, src] if kind != "transformer" else [src, tgt]
    return inputs, given


def results(module, inputs, given, dtype):
    module = copy.deepcopy(module).to(dtype)
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    given = {name: x.to(dtype) if x.is_floating_point() else x for name, x in given.items()}
    output = module(*inputs, **given)
    weights = torch.linspace(-1, 1, output.numel(), dtype=dtype).view(output.shape)
    return [output, *torch.autograd.grad((output.square() * weights).sum(), [*inputs, *module.parameters()])]


@pytest.mark.parametrize("kind", ["encoder layer", "encoder", "decoder layer", "decoder", "transformer"])
def test_as_torch(kind):
    for seed in range(20):
        torch.manual_seed(seed)
        theirs = build(torch.nn, random.Random(seed), kind)
        torch.manual_seed(seed)
        ours = build(attn.torch, random.Random(seed), kind)
        a, b = ours.state_dict(), theirs.state_dict()
        assert list(a) == list(b) and all(torch.equal(a[n], b[n]) for n in b), "the same seed, the same parameters"
        layer = ours
        while not hasattr(layer, "self_attn"):
            layer = layer.encoder if hasattr(layer, "encoder") else layer.layers[0]
        inputs, given = call_of(random.Random(seed + 100), kind, layer.self_attn.batch_first)
        parts = [results(m, inputs, given, d) for m, d in ((ours, torch.float32), (theirs, torch.float32),
                                                           (theirs, torch.float64))]
        scale = max(1.0, *(z.abs().max().item() for z in parts[2]))
        for n, (x, y, z) in enumerate(zip(*parts)):
            error, usual = ((t.detach().double() - z).abs().max().item() for t in (x, y))
            assert error <= 2 * usual + 4 * torch.finfo(torch.float32).eps * scale, (kind, seed, n, error, usual)
        with torch.no_grad():
            assert torch.equal(ours.eval()(*inputs, **given), parts[0][0]), "one result on every path"


def test_a_padded_sample_and_padded_rows_in_eval_mode():
    torch.manual_seed(0)
    layer = attn.torch.TransformerEncoderLayer(E, HEADS, 16, batch_first=True).eval()
    encoder = attn.torch.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 4, E)
    padding = torch.tensor([[False, False, True, True], [True] * 4])
    with torch.no_grad():
        fast, packed = layer(x, src_key_padding_mask=padding), encoder(x, src_key_padding_mask=padding)
    assert torch.isfinite(fast).all() and (packed[0, 2:] != 0).all()
    assert torch.equal(packed, encoder(x, src_key_padding_mask=padding))
    theirs = torch.nn.TransformerEncoderLayer(E, HEADS, 16, batch_first=True).eval()
    theirs.load_state_dict(layer.state_dict())
    with torch.no_grad():
        assert theirs(x, src_key_padding_mask=padding)[1].isnan().all(), "docs/torch.md says so"


def test_states_go_both_ways_and_layers_into_torchs_stacks():
    torch.manual_seed(0)
    theirs = torch.nn.Transformer(E, HEADS, 1, 1, 16, dropout=0.0)
    ours = attn.torch.Transformer(E, HEADS, 1, 1, 16, dropout=0.0)
    src, tgt = torch.randn(4, 2, E), torch.randn(5, 2, E)
    ours.load_state_dict(theirs.state_dict())
    assert (ours(src, tgt) - theirs(src, tgt)).abs().max() < 1e-5
    theirs.load_state_dict(attn.torch.Transformer(E, HEADS, 1, 1, 16).state_dict())
    stack = torch.nn.TransformerEncoder(attn.torch.TransformerEncoderLayer(E, HEADS, 16, batch_first=True), 2).eval()
    padding = torch.tensor([[False, False, True, True]])
    with torch.no_grad():
        assert stack(torch.randn(1, 4, E), src_key_padding_mask=padding).shape == (1, 4, E)  # a nested tensor: torch's
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(src, tgt), ours(src, tgt))


def test_training_and_compiling():
    torch.manual_seed(0)
    model = attn.torch.Transformer(E, HEADS, 1, 1, 16, dropout=0.1, batch_first=True)
    src, tgt = torch.randn(2, 4, E), torch.randn(2, 5, E)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
    model(src, tgt, tgt_mask=causal).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    model.eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert (compiled(src, tgt, tgt_mask=causal) - model(src, tgt, tgt_mask=causal)).abs().max() < 1e-5


def test_mistakes():
    layer = attn.torch.TransformerEncoderLayer(E, HEADS, 16)
    x = torch.zeros(4, 2, E)
    for error, text, call in (
        (ValueError, r"src has shape \[4, 2, 3\]", lambda: layer(x[..., :3])),
        (TypeError, "src is None", lambda: layer(None)),
        (TypeError, "src_mask is torch.int64", lambda: layer(x, torch.zeros(4, 4, dtype=torch.int64))),
        (ValueError, "the causal hint is about src_mask", lambda: layer(x, is_causal=True)),
        (ValueError, "attn_mask has shape", lambda: layer(x, torch.zeros(3, 3))),
    ):
        with pytest.raises(error, match=text):
            call()
