// src/model/fields.h: lists, for each struct that is saved in files, every field with its name. Writing, reading and
// comparing use these lists.
#pragma once
#include <attn/train.h>

#include <concepts>
#include <type_traits>

namespace attn {

template <typename T, typename Struct>
concept Fields = std::same_as<std::remove_const_t<T>, Struct>;

// each_field calls visit(name, field) for each field. A list that lacks a field does not compile, because the
// structured binding must name all fields.

template <Fields<nn::RotaryScaling> T, typename F>
void each_field(T& scaling, F&& visit) {
  auto& [factor, low_frequency, high_frequency, original_context, kind, attention_factor, beta_fast, beta_slow,
         truncate, short_factors, long_factors] = scaling;
  visit("factor", factor), visit("low_frequency", low_frequency), visit("high_frequency", high_frequency);
  visit("original_context", original_context), visit("kind", kind), visit("attention_factor", attention_factor);
  visit("beta_fast", beta_fast), visit("beta_slow", beta_slow), visit("truncate", truncate);
  visit("short_factors", short_factors), visit("long_factors", long_factors);
}

template <Fields<LayerConfig> T, typename F>
void each_field(T& layer, F&& visit) {
  auto& [sliding_window, rotary, rotary_theta, rotary_scaling] = layer;
  visit("sliding_window", sliding_window), visit("rotary", rotary), visit("rotary_theta", rotary_theta);
  visit("rotary_scaling", rotary_scaling);
}

template <Fields<ModelConfig> T, typename F>
void each_field(T& config, F&& visit) {
  auto& [vocab_size, context, layers, heads, kv_heads, width, head_dim, mlp_width, norm, norm_eps, positions,
         rotary_theta, rotary_scaling, rotary_dim, activation, attention_bias, attention_out_bias, qk_norm,
         query_scalar, attention_softcap, sliding_window, per_layer, post_norms, mlp_bias, scaled_embedding,
         final_softcap, tied_head, dropout, end_tokens] = config;
  visit("vocab_size", vocab_size), visit("context", context), visit("layers", layers), visit("heads", heads),
      visit("kv_heads", kv_heads);
  visit("width", width), visit("head_dim", head_dim), visit("mlp_width", mlp_width);
  visit("norm", norm), visit("norm_eps", norm_eps), visit("positions", positions), visit("rotary_theta", rotary_theta);
  visit("rotary_scaling", rotary_scaling), visit("rotary_dim", rotary_dim);
  visit("activation", activation), visit("attention_bias", attention_bias);
  visit("attention_out_bias", attention_out_bias), visit("qk_norm", qk_norm), visit("query_scalar", query_scalar);
  visit("attention_softcap", attention_softcap), visit("sliding_window", sliding_window), visit("per_layer", per_layer);
  visit("post_norms", post_norms), visit("mlp_bias", mlp_bias), visit("scaled_embedding", scaled_embedding);
  visit("final_softcap", final_softcap);
  visit("tied_head", tied_head), visit("dropout", dropout), visit("end_tokens", end_tokens);
}

template <Fields<EncoderDecoderConfig> T, typename F>
void each_field(T& config, F&& visit) {
  auto& [family, vocab_size, decoder_vocab_size, positions, encoder_layers, decoder_layers, encoder_heads,
         decoder_heads, width, head_dim, encoder_mlp_width, decoder_mlp_width, activation, gated, norm_eps,
         relative_buckets, relative_distance, scaled_embedding, scaled_output, shared_embedding, tied_head, padding_id,
         dropout] = config;
  visit("family", family), visit("vocab_size", vocab_size), visit("decoder_vocab_size", decoder_vocab_size);
  visit("positions", positions), visit("encoder_layers", encoder_layers), visit("decoder_layers", decoder_layers);
  visit("encoder_heads", encoder_heads), visit("decoder_heads", decoder_heads), visit("width", width);
  visit("head_dim", head_dim), visit("encoder_mlp_width", encoder_mlp_width);
  visit("decoder_mlp_width", decoder_mlp_width), visit("activation", activation), visit("gated", gated);
  visit("norm_eps", norm_eps), visit("relative_buckets", relative_buckets);
  visit("relative_distance", relative_distance), visit("scaled_embedding", scaled_embedding);
  visit("scaled_output", scaled_output), visit("shared_embedding", shared_embedding), visit("tied_head", tied_head);
  visit("padding_id", padding_id), visit("dropout", dropout);
}

template <Fields<TrainOptions> T, typename F>
void each_field(T& options, F&& visit) {
  auto& [model, dtype, steps, batch, seed, lr, warmup, betas, weight_decay, clip, eval_every, parts, encoder_decoder,
         label_smoothing] = options;
  visit("model", model), visit("dtype", dtype), visit("steps", steps), visit("batch", batch), visit("seed", seed),
      visit("lr", lr);
  visit("warmup", warmup), visit("betas", betas), visit("weight_decay", weight_decay), visit("clip", clip),
      visit("eval_every", eval_every), visit("parts", parts);
  visit("encoder_decoder", encoder_decoder), visit("label_smoothing", label_smoothing);
}

/// Return whether the enumeration has this value, because a file or a caller's cast may give any number.
constexpr bool has_value(ModelConfig::Norm x) {
  return x >= ModelConfig::Norm::layer_norm && x <= ModelConfig::Norm::rms_norm_plus_one;
}
constexpr bool has_value(ModelConfig::Positions x) {
  return x >= ModelConfig::Positions::learned && x <= ModelConfig::Positions::rotary;
}
constexpr bool has_value(ModelConfig::Activation x) {
  return x >= ModelConfig::Activation::gelu && x <= ModelConfig::Activation::geglu_tanh;
}
constexpr bool has_value(nn::RotaryScaling::Kind x) {
  return x >= nn::RotaryScaling::Kind::llama3 && x <= nn::RotaryScaling::Kind::longrope;
}

constexpr bool has_value(EncoderDecoderConfig::Family x) {
  return x >= EncoderDecoderConfig::Family::t5 && x <= EncoderDecoderConfig::Family::pegasus;
}
constexpr bool has_value(EncoderDecoderConfig::Activation x) {
  return x >= EncoderDecoderConfig::Activation::gelu && x <= EncoderDecoderConfig::Activation::tanh;
}

/// Returns whether an MLP with this activation has a second projection, which gates the first.
constexpr bool is_gated(ModelConfig::Activation x) { return x >= ModelConfig::Activation::swiglu; }

}  // namespace attn
