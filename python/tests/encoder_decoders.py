# python/tests/encoder_decoders.py: tiny encoder-decoders made with transformers, with their rows and logits of some
# texts, and the texts and scores that generate finds for them.
import json
import pathlib

import torch
import transformers as hf

from families import values

SIZES = {"vocab_size": 29, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 24, "max_position_embeddings": 40,
         "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
T5_SIZES = {"vocab_size": 29, "d_model": 16, "d_kv": 3, "d_ff": 20, "num_layers": 2, "num_heads": 4,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "decoder_start_token_id": 0}


def bart(name, head="ForConditionalGeneration", **changes):
    return getattr(hf, name + head)(getattr(hf, name + "Config")(**{**SIZES, **changes}))


def t5(name="T5", **changes):
    return getattr(hf, name + "ForConditionalGeneration")(getattr(hf, name + "Config")(**{**T5_SIZES, **changes}))


def untied(model):
    """A head of its own, as T5 1.1 and FLAN-T5 have it."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


ENCODER_DECODERS = {
    "t5": lambda: t5(),
    "t5 1.1": lambda: untied(t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=3)),
    "t5, gated silu": lambda: t5(feed_forward_proj="gated-silu", tie_word_embeddings=False),
    "mt5": lambda: untied(t5("MT5")),
    "bart": lambda: bart("Bart"),
    "bart, scaled": lambda: bart("Bart", scale_embedding=True, activation_function="gelu_new", decoder_layers=1),
    "mbart": lambda: bart("MBart", scale_embedding=True),
    "marian": lambda: bart("Marian", "MTModel", scale_embedding=True, activation_function="swish", pad_token_id=28,
                           eos_token_id=0, bos_token_id=None, forced_eos_token_id=0, decoder_start_token_id=28),
    "marian, two tables": lambda: bart("Marian", "MTModel", share_encoder_decoder_embeddings=False, pad_token_id=23,
                                       decoder_vocab_size=24, eos_token_id=0, decoder_start_token_id=23),
    "m2m_100": lambda: bart("M2M100", activation_function="relu"),
    "m2m_100, width 18": lambda: bart("M2M100", d_model=18, encoder_attention_heads=3, pad_token_id=0, bos_token_id=1),
    "pegasus": lambda: bart("Pegasus", pad_token_id=0, eos_token_id=1, forced_eos_token_id=1, decoder_start_token_id=0,
                            activation_function="relu", scale_embedding=True),
}

# What generate is called with; ids 3 to 22 are words in every model.
SETTINGS = [
    {"max_length": 12},
    {"num_beams": 3, "max_length": 12},
    {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 2.0, "early_stopping": True, "max_length": 14,
     "eos_token_id": [2, 8, 15, 20]},
    {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5, "early_stopping": "never", "max_length": 16,
     "eos_token_id": [3, 9, 14]},
    {"num_beams": 4, "num_return_sequences": 3, "length_penalty": -1.0, "max_new_tokens": 10,
     "eos_token_id": [2, 8, 15, 20]},
    {"num_beams": 3, "length_penalty": 0.0, "early_stopping": "never", "max_length": 15,
     "eos_token_id": [2, 11]},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "max_length": 24, "early_stopping": True},
    {"num_beams": 1, "no_repeat_ngram_size": 1, "max_length": 16},
    {"num_beams": 2, "num_return_sequences": 2, "min_length": 7, "max_length": 11, "eos_token_id": [5, 12]},
    {"num_beams": 2, "forced_bos_token_id": 5, "forced_eos_token_id": 7, "max_length": 8},
    {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": [2, 9, 11], "max_length": 20},
    {"num_beams": 2, "repetition_penalty": 1.7, "max_length": 13},
    {"num_beams": 2, "bad_words_ids": [[4], [6, 7], [8, 3, 5]], "max_length": 18},
    {"num_beams": 3, "renormalize_logits": True, "min_new_tokens": 4, "max_new_tokens": 9, "suppress_tokens": [3, 10]},
    {"num_beams": 9, "num_return_sequences": 9, "max_length": 4},
]


def save(folder, model, seed):
    """The folder as transformers saves it, with other weights; the tables of sines are no weights."""
    torch.manual_seed(seed)
    bias = getattr(model, "final_logits_bias", torch.zeros(0))
    with torch.no_grad():
        for weight in [bias] + [weight for weight in model.parameters() if weight.requires_grad]:
            weight.add_(torch.randn_like(weight) * 0.3)
    model.eval().save_pretrained(folder)
    model.set_attn_implementation("eager")


def cut(tokens, ends):
    """The tokens behind the first one, up to an end token."""
    tokens = tokens[1:]
    return tokens[:next((i for i, token in enumerate(tokens) if token in ends), len(tokens))]


def decodes_more(model):
    """Whether the decoder has more layers: transformers' cache has as many as the encoder."""
    layers = getattr(model.config, "decoder_layers", None) or model.config.num_decoder_layers
    return layers > model.config.num_hidden_layers


def generated(model, sources, settings):
    """For each source the texts that generate returns, without begin and end, and their scores."""
    ends = settings.get("eos_token_id", model.generation_config.eos_token_id)
    ends = ends if isinstance(ends, list) else [ends]
    cache = not decodes_more(model)
    texts, scores = [], []
    for source in sources:
        found = model.generate(torch.tensor([source]), **settings, do_sample=False, return_dict_in_generate=True,
                               output_scores=True, use_cache=cache)
        texts.append([cut(row, ends) for row in found.sequences.tolist()])
        if settings.get("num_beams", 1) > 1:
            scores.append([float(f"{score:.9g}") for score in found.sequences_scores.tolist()])
    return {"settings": settings, "texts": texts, "scores": scores}


def computed(model, sources, targets):
    """The rows of the sources and the logits of the targets, each text alone, one after another."""
    rows, logits = [], []
    for source, target in zip(sources, targets):
        said = model(torch.tensor([source]), decoder_input_ids=torch.tensor([target]), use_cache=False)
        rows.append(said.encoder_last_hidden_state[0])
        logits.append(said.logits[0])
    return torch.cat(rows), torch.cat(logits)


def write(folder, model, seed=7, lengths=((9, 6), (1, 11), (23, 1), (14, 17)), settings=SETTINGS):
    """The folder as transformers saves it; rows and logits with their errors against float64; texts of generate."""
    folder = pathlib.Path(folder)
    save(folder, model, seed)
    torch.manual_seed(seed + 1)
    words = min(23, getattr(model.config, "decoder_vocab_size", None) or 23)
    sources = [torch.randint(3, 23, (n,)).tolist() for n, _ in lengths]
    targets = [[model.config.decoder_start_token_id] + torch.randint(3, words, (n - 1,)).tolist() for _, n in lengths]
    sources[2][5] = model.config.pad_token_id  # where a text has it, it is a token like others
    with torch.no_grad():
        rows, logits = computed(model, sources, targets)
        found = [generated(model, sources[:2] + sources[3:], one) for one in settings]
        true_rows, true_logits = computed(model.double(), sources, targets)

    def beside(x, truth):
        return {**values(x), "error": (x.double() - truth).abs().max().item()}

    record = {"sources": sources, "targets": targets, "rows": beside(rows, true_rows),
              "logits": beside(logits, true_logits), "generated": found}
    (folder / "translated.json").write_text(json.dumps(record) + "\n")
