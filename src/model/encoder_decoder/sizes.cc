// src/model/encoder_decoder/sizes.cc: names the shapes of encoder-decoders that are trained from scratch.
#include <attn/encoder_decoder.h>

namespace attn {
namespace {

EncoderDecoderConfig of_size(std::int64_t vocab_size, std::int64_t layers, std::int64_t heads, std::int64_t width) {
  return {.family = EncoderDecoderConfig::Family::marian,
          .vocab_size = vocab_size,
          .decoder_vocab_size = vocab_size,
          .positions = 512,
          .encoder_layers = layers,
          .decoder_layers = layers,
          .encoder_heads = heads,
          .decoder_heads = heads,
          .width = width,
          .encoder_mlp_width = 4 * width,
          .decoder_mlp_width = 4 * width,
          .activation = EncoderDecoderConfig::Activation::relu,
          .scaled_embedding = true,
          .padding_id = vocab_size - 1,
          .dropout = 0.1};
}

}  // namespace

EncoderDecoderConfig EncoderDecoderConfig::nano(std::int64_t vocab_size) { return of_size(vocab_size, 2, 4, 128); }
EncoderDecoderConfig EncoderDecoderConfig::baby(std::int64_t vocab_size) { return of_size(vocab_size, 4, 8, 256); }
EncoderDecoderConfig EncoderDecoderConfig::small(std::int64_t vocab_size) { return of_size(vocab_size, 6, 8, 512); }

}  // namespace attn
