// src/text/tokenizer/normalizer.h: declares the steps of the normalizers of encoders' tokenizers.
#pragma once
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/rewritten.h"

#include <memory>
#include <vector>

namespace attn::text {

/// A step of one of Hugging Face's normalizers; the four parts of BertNormalizer are steps of their own.
struct NormalizerStep {
  enum class Kind {
    clean,           // BERT: removes control characters and the like, white space becomes a space
    space_han,       // BERT: puts spaces around Han characters
    remove_accents,  // BERT: form D without marks of the class Mn
    lowercase,       // each character by itself
    nfc,
    nfd,
    nfkc,
    nfkd,
    remove_marks,  // StripAccents: removes marks (category M)
    replace,       // `pattern` by `text`
    prepend,       // `text` before a text that is not empty
    strip,         // white space at the begin (`left`) and the end (`right`)
    charsmap,      // Precompiled: SentencePiece's table
    nmt,           // Nmt: control characters away, some white space to a space
  };
  Kind kind = Kind::clean;
  Pattern pattern = {};
  std::string text = {};
  bool left = false, right = false;
  std::shared_ptr<const Charsmap> map = {};
};

/// Applies the steps, one after another.
Rewritten normalized(const std::vector<NormalizerStep>& steps, Rewritten text);

}  // namespace attn::text
