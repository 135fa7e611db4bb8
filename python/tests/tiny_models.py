# python/tests/tiny_models.py: every model type of transformers with width 32 and two layers, and inputs for it.
"""`build(model_type, implementation)` makes the model, `inputs(model)` its inputs; what cannot be made tiny raises."""

import inspect

import torch
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto as auto

VOCABULARY, WIDTH, HEADS, TOKENS = 99, 32, 4, 9

# The first mapping that knows a type gives its class: with a head first, so that there are logits.
_HEADS = [
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_CTC_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_MAPPING",
]

# What a number of a configuration becomes, by its name.
_NUMBERS = {}
for _number, _names in [
    (
        0,
        "num_nextn_predict_layers num_mtp_layers mtp_num_hidden_layers num_kv_shared_layers pad_token_id "
        "bos_token_id decoder_start_token_id",
    ),
    (1, "n_group topk_group num_shared_experts n_shared_experts first_k_dense_replace"),
    (
        2,
        "num_key_value_heads num_kv_heads num_hidden_layers n_layer num_layers n_layers encoder_layers "
        "decoder_layers depth num_decoder_layers num_encoder_layers num_block_layers text_layers "
        "num_experts_per_tok num_experts_per_token moe_topk moe_k num_selected_experts top_k_experts "
        "moe_top_k num_frames num_codebooks num_quantizers num_conv_pos_embedding_groups",
    ),
    (3, "num_channels conv_kernel_size num_conv_pos_embeddings"),
    (
        4,
        "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads "
        "num_q_heads num_experts num_local_experts n_routed_experts moe_num_experts num_experts_per_layer "
        "zero_expert_num index_n_heads linear_num_key_heads linear_num_value_heads mamba_n_heads index_topk "
        "sliding_window attention_window local_attention attention_chunk_size patch_size rotary_dim",
    ),
    (
        8,
        "head_dim global_head_dim d_kv qk_nope_head_dim qk_rope_head_dim v_head_dim attention_head_dim "
        "head_size swa_head_dim kv_channels attention_head_size d_head kv_lora_rank q_lora_rank "
        "index_head_dim swa_v_head_dim linear_key_head_dim linear_value_head_dim hidden_size_per_layer_input "
        "laurel_rank",
    ),
    (16, "qk_head_dim image_size num_mel_bins feature_size"),
    (
        WIDTH,
        "hidden_size d_model n_embd embed_dim dim emb_dim word_embed_proj_dim embedding_size model_dim "
        "lm_head_dim encoder_hidden_size decoder_hidden_size text_hidden_size out_hidden_size projection_dim "
        "text_embed_dim output_hidden_size backbone_hidden_size audio_hidden_size vision_hidden_size "
        "projector_hidden_size",
    ),
    (
        48,
        "intermediate_size ffn_dim d_ff d_inner hidden_dim encoder_ffn_dim decoder_ffn_dim "
        "moe_intermediate_size n_inner shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "ffn_hidden_size mlp_dim dense_ffn_hidden_size expert_intermediate_size shared_intermediate_size "
        "intermediate_size_mlp expert_ffn_hidden_size block_ff_dim",
    ),
    (
        64,
        "max_position_embeddings n_positions n_ctx max_seq_len block_size max_source_positions " "max_target_positions",
    ),
    (98, "eos_token_id"),
    (
        VOCABULARY,
        "vocab_size text_vocab_size codebook_size vocab_size_per_layer_input char_vocab_size "
        "pronunciation_vocab_size shape_vocab_size",
    ),
]:
    _NUMBERS.update(dict.fromkeys(_names.split(), _number))
_NOTHING = ("forced_eos_token_id", "forced_bos_token_id", "suppress_tokens", "begin_suppress_tokens")
_LISTS = {"conv_dim": 16, "tdnn_dim": 16, "hidden_sizes": WIDTH, "embed_dims": WIDTH}
# Probabilities: none, so that two runs agree in training mode too.
_DROPS = ("drop", "layerdrop", "_pdrop")

# What the rules above leave wrong.
_SPECIAL = {
    "bamba": dict(attn_layer_indices=[1]),
    "deepseek_v2": dict(num_experts_per_tok=2),
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]], window_size=4),
    "granitemoehybrid": dict(layer_types=["mamba", "attention"]),
    "hy_v4": dict(indexer_types=["full", "shared"]),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1),
    "layoutlmv3": dict(coordinate_size=5, shape_size=6),
    "lilt": dict(hidden_size=24),
    "mamba2": dict(num_heads=8, head_dim=8),
    "minimax_m3_vl_text": dict(
        layer_types=["full_attention", "minimax_m3_sparse"], index_block_size=2, index_topk_blocks=1, index_n_heads=2
    ),
    "recurrent_gemma": dict(block_types=["recurrent", "attention"]),
    "xmod": dict(languages=["en_XX"], default_language="en_XX"),
    "zaya": dict(num_experts_per_tok=1),
}
# Types whose rotary embedding has a part for each of time, height and width, and those whose sounds are [B, T, mel].
_SECTIONS = ("glm4v", "glm46v", "glm_ocr", "glm_image", "glmga", "qwen2_vl", "qwen2_5_vl", "paddleocr")
_TIME_FIRST = (
    "parakeet",
    "canary",
    "cohere_asr",
    "lasr",
    "nemotron",
    "speech_to_text",
    "seamless",
    "wav2vec2-bert",
    "audio-spectrogram",
)


def config_of(config_class, special=None):
    """The smallest configuration of a class that is still of its kind."""
    default = config_class()
    given = {}
    for name, value in vars(default).items():
        if name in config_class.sub_configs:
            if value is not None and not isinstance(value, dict):
                given[name] = config_of(type(value))
        elif name in _NOTHING:
            given[name] = None
        elif name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
            given[name] = _NUMBERS[name]
        elif any(part in name for part in _DROPS) and isinstance(value, float):
            given[name] = 0.0
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and name.endswith(("_token_id", "_token_index"))
            and value >= VOCABULARY
        ):
            given[name] = 90 + sum(name.encode()) % 8
        elif name == "head_dim" and value is None:
            given[name] = 8
        elif name in _LISTS and isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
            given[name] = type(value)([_LISTS[name]] * len(value))
        elif (
            name in ("rope_parameters", "rope_scaling")
            and isinstance(value, dict)
            and ("mrope_section" in value or config_class.model_type.startswith(_SECTIONS))
        ):
            given[name] = {
                **value,
                "mrope_section": [4, 2, 2] if value.get("partial_rotary_factor", 1) == 1 else [2, 1, 1],
            }
            given["head_dim"] = 16
    if "qk_rope_head_dim" in given and "num_key_value_heads" in given:
        given["num_key_value_heads"] = HEADS
    layers = next((given[n] for n in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") if n in given), 2)
    for name in ("layer_types", "mlp_layer_types", "indexer_types", "layers_block_type", "attention_types"):
        kinds = vars(default).get(name)
        if isinstance(kinds, (list, tuple)) and kinds and isinstance(kinds[0], str):
            given[name] = list(dict.fromkeys(kinds[::-1]))[::-1][-layers:]
            given[name] = [given[name][0]] * (layers - len(given[name])) + given[name]
    given.update(special or {})
    return config_class(**given)


def class_of(model_type):
    config = CONFIG_MAPPING[model_type]
    for name in (
        sorted(_HEADS, key="MODEL_FOR_MULTIMODAL_LM_MAPPING".__ne__) if "text_config" in config.sub_configs else _HEADS
    ):
        mapping = getattr(auto, name)
        if config in mapping:
            found = mapping[config]
            return found[0] if isinstance(found, tuple) else found
    raise LookupError(f"{model_type} has no model")


def build(model_type, implementation="eager"):
    """A model with weights large enough that a wrong mask shows."""
    config = config_of(CONFIG_MAPPING[model_type], _SPECIAL.get(model_type))
    return from_config(class_of(model_type), config, implementation)


def from_config(model_class, config, implementation):
    config._attn_implementation = implementation
    config._experts_implementation = "eager"  # the grouped product of others knows no float64
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > 9_000_000:
        raise MemoryError(f"{count} parameters")
    torch.manual_seed(0)
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.is_floating_point():
                parameter.normal_(std=1.5 / max(1, parameter[0].numel()) ** 0.5, generator=generator)
    return model


def padding(side, batch=3, tokens=TOKENS):
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    if side == "left":
        mask[1, :3], mask[2, :6] = 0, 0
    elif side == "right":
        mask[1, 6:], mask[2, 3:] = 0, 0
    return mask


def inputs(model, side="none"):
    """Keyword arguments of forward: text, pictures or sound, by the names it takes."""
    generator = torch.Generator().manual_seed(1)
    names = inspect.signature(model.forward).parameters
    config = model.config
    given = {}

    def ids():
        return torch.randint(1, 80, (3, TOKENS), generator=generator)

    def noise(*shape):
        return torch.randn(*shape, generator=generator)

    def pictures(vision):
        size = getattr(vision, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        frames = (
            [vision.num_frames]
            if hasattr(vision, "tubelet_size") or type(vision).__name__.startswith("TimeSformer")
            else []
        )
        return noise(3, *frames, getattr(vision, "num_channels", 3), size, size)

    if "input_ids" in names:
        given["input_ids"], mask = ids(), padding(side)
        ends = (mask * torch.arange(1, TOKENS + 1)).argmax(1)
        given["input_ids"][torch.arange(3), ends] = 98  # where CLIP and its kin take a text's vector
        if "attention_mask" in names:
            given["attention_mask"] = mask
        if "pixel_values" in names and (
            names["pixel_values"].default is inspect.Parameter.empty or hasattr(config, "projection_dim")
        ):
            given["pixel_values"] = pictures(config.vision_config)
    elif "grid_thw" in names and "hidden_states" in names:
        patch, channels = config.patch_size, getattr(config, "in_channels", None) or config.num_channels
        given["hidden_states"] = noise(24, channels * getattr(config, "temporal_patch_size", 1) * patch * patch)
        given["grid_thw"] = torch.tensor([[1, 4, 4], [1, 2, 4]])
    elif "pixel_values" in names:
        given["pixel_values"] = pictures(config)
    elif "input_values" in names:
        given["input_values"] = noise(3, 4000)
    elif "input_features" in names:
        shape = (128, 16) if config.model_type.startswith(_TIME_FIRST) else (16, 128)
        given["input_features"] = noise(3, *shape)
    else:
        raise LookupError(f"{type(model).__name__} takes {list(names)[:6]}")
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = ids()
        if "decoder_attention_mask" in names:
            given["decoder_attention_mask"] = padding("none" if side == "left" else side)
    return given
