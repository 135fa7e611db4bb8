// fuzz/translation_folder.h: a folder with a tiny Marian model and its SentencePiece models.
#pragma once
#include "folder.h"

#include <attn/encoder_decoder.h>

#include <string>
#include <utility>
#include <vector>

namespace attn::fuzz {

/// A SentencePiece model of a few pieces: bytes of its protocol buffer.
inline std::string sentence_piece_file() {
  std::string file;
  const auto add = [&](const std::string& piece, int type) {
    std::string inner = "\x0A" + std::string(1, static_cast<char>(piece.size())) + piece;
    inner += std::string("\x15\0\0\x80\xBF", 5) + "\x18" + static_cast<char>(type);  // the score -1
    file += "\x0A" + std::string(1, static_cast<char>(inner.size())) + inner;
  };
  add("</s>", 3), add("<unk>", 2), add("\xE2\x96\x81", 1), add("a", 1),
      add("\xE2\x96\x81"
          "b",
          1),
      add("ab", 4);
  return file + std::string("\x1A\x06\x18\x01\x20\x01\x28\x01", 8);
}

/// The files of the folder, which a fuzzer replaces one by one.
inline const std::vector<std::pair<std::string, std::string>> translation_files = {
    {"config.json", R"({"model_type":"marian","vocab_size":6,"d_model":4,"encoder_layers":1,"decoder_layers":1,
      "encoder_attention_heads":2,"decoder_attention_heads":1,"encoder_ffn_dim":3,"decoder_ffn_dim":3,"dropout":0,
      "max_position_embeddings":9,"pad_token_id":5,"eos_token_id":0,"decoder_start_token_id":5})"},
    {"generation_config.json", R"({"decoder_start_token_id":5,"eos_token_id":0,"max_length":6,"num_beams":2,
      "bad_words_ids":[[5]],"forced_eos_token_id":0,"no_repeat_ngram_size":3,"early_stopping":"never"})"},
    {"vocab.json", R"({"</s>":0,"<unk>":1,"▁":2,"a":3,"▁b":4,"<pad>":5})"},
    {"tokenizer_config.json", R"({"separate_vocabs":false})"},
    {"source.spm", sentence_piece_file()},
    {"target.spm", sentence_piece_file()}};

/// Writes the weights of a model with that config.json.
inline void write_translation_weights(const Folder& folder) {
  EncoderDecoder(EncoderDecoderConfig::from_json(translation_files[0].second)).save(folder.path());
}

}  // namespace attn::fuzz
