// include/attn/explain.h: attention on a text as named steps with all their numbers, and their text, JSON and SVG
// forms.
#pragma once
#include <attn/attention.h>
#include <attn/cache.h>
#include <attn/mask.h>
#include <attn/tensor.h>
#include <attn/text.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// The language of titles, notes and sources; names and formulas are the same in all.
enum class Language { en, zh };

/// How a token's place enters: not at all, added to x (Vaswani 2017), or as a rotation of q and k (Su 2021,
/// 2104.09864).
enum class Positions { none, sinusoidal, rotary };

/// Why a pair takes no part. `mask` is any part of the mask that is neither causal nor a window; `score`: its score
/// became -inf; `not_asked`: it does take part, but is not among the weights that were asked for.
enum class Hidden : std::uint8_t { visible, causal, window, mask, padding, score, not_asked };

/// What is added to the scores: ALiBi's slopes, or a relative-position table of 8 buckets, drawn with rand; ALiBi by
/// distance both ways.
enum class ExplainBias { none, alibi, relative, alibi_symmetric };

/// What `explain` does. The defaults are those of a first lesson: Embedding(50000, 3), then w_query and w_key
/// rand(3, 2) and w_value rand(3, 4), each from a fresh `seed`.
struct ExplainOptions {
  std::optional<std::string> to = std::nullopt;  ///< cross-attention: keys and values come from this text
  Score::Kind score = Score::Kind::scaled_dot;
  Mask mask = {};
  std::int64_t heads = 1;
  std::int64_t dim = 3;  ///< of the embedding
  std::int64_t dk = 2;   ///< of q and k, a head
  std::int64_t dv = 4;   ///< of v, a head
  std::uint64_t seed = 123;
  Positions positions = Positions::none;
  text::Tokens tokens = text::Tokens::automatic;
  /// Cuts words where spaces do not (Chinese, Japanese); used when `tokens` is `words`, which alone knows spaces only.
  std::function<std::vector<std::string>(const std::string&)> cut_words = {};
  /// Own matrices instead of random ones: w_query, w_key [dim, heads * dk], w_value [dim, heads * dv], or [heads, dim,
  /// dk] and so on. All three or none; they set dim, dk, dv. `embedding` [ids, dim] may come alone.
  Tensor w_query = {}, w_key = {}, w_value = {}, embedding = {};
  double softcap = 0, temperature = 1;  ///< as in AttentionOptions
  ExplainBias bias = ExplainBias::none;
  ScoreExpression score_mod = {};
  std::optional<double> sink = std::nullopt;  ///< a logit, the same of each head
  double dropout_p = 0;                       ///< by counter, with `seed`
  Weights weights = Weights::none;            ///< a step of its own shows those asked for
  bool packed = false;                        ///< a step compares the sentences packed one behind the other
  /// steps show the keys and values from a cache, and what comes of them
  std::optional<KvStorage> cache = std::nullopt;
  std::optional<std::int64_t> query = std::nullopt;  ///< this row (from 0) is opened: every product and sum
  /// Also the way back, for the loss L = 1/2 sum of context^2: the gradients of the context, v, the weights after
  /// dropout and before, the scores that enter softmax, those before temperature, score_mod and softcap, q and k.
  bool gradients = false;
  Language language = Language::en;
};

/// One step: a name, a formula, numbers with heads for rows and columns.
struct ExplainStep {
  enum class Kind {
    words,    ///< tokens: `rows` holds them, no values
    ids,      ///< i64, one a token
    table,    ///< a vector a row
    pairs,    ///< queries as rows, keys as columns
    weights,  ///< pairs that add up to 1 along a row: drawn as a heat map
    keys,     ///< keys as rows, the stages of one query's sum as columns
    checks,   ///< i64, 1 where what `note` says holds
  };
  Kind kind = Kind::table;
  std::string name;     ///< "scores": the same in every language
  std::string title;    ///< in the language asked for
  std::string formula;  ///< "q · k"
  std::string note;     ///< the term, in a few words
  std::string source;   ///< where the numbers come from
  Dims shape;           ///< of `values`: [B, H, rows, columns] without the dims that are not there
  Tensor values;        ///< f32, f64 or i64
  std::int64_t batch = 1, heads = 1;
  bool key_rows = false;                                ///< rows are the keys' tokens (k, v), not the queries'
  std::vector<std::vector<std::string>> rows, columns;  ///< heads of rows and columns, one list a sentence
  std::vector<Hidden> hidden;                           ///< one a value, or empty
};

/// A run of attention, step by step; `to_text`, `to_json` and `to_svg` only draw it.
struct ATTN_API Explanation {
  static constexpr int version = 1;
  std::vector<std::string> texts;
  std::optional<std::string> to;
  bool batch = false;
  Language language = Language::en;
  std::string mask;  ///< its notation; empty when everything is seen
  std::optional<std::int64_t> query;
  std::vector<ExplainStep> steps;
  std::vector<ExplainStep> parameters;  ///< W_q, W_k, W_v and the score's own, so that every number can be checked

  /// The step of that name; ValueError lists the names there are.
  const ExplainStep& step(const std::string& name) const;
};

/// Runs attention on a text, keeping every step; several texts make a batch, padded on the right.
/// Scores are `attention_scores`, weights and context `attention`: the same bits.
/// Errors   ValueError (no token, more than 2048 of them, a query that is not there), ShapeError (own matrices, a mask
///          that does not fit).
ATTN_API Explanation explain(const std::string& text, const ExplainOptions& options = {});
ATTN_API Explanation explain_batch(const std::vector<std::string>& texts, const ExplainOptions& options = {});

/// What `to_text` draws on. The caller asks the terminal.
struct TextOptions {
  enum class Colour { none, palette, rgb };  ///< `palette`: 256 colours
  int width = 100;
  Colour colour = Colour::none;
};
/// Tables for a terminal: at most `width` columns (of less than 40: 40), East Asian characters counted as two; long
/// sentences are shown in part, and it says which.
ATTN_API std::string to_text(const Explanation& explanation, const TextOptions& options = {});
/// {"attn_explain": 1, "text", "steps": [{"name", "title", "formula", "shape", "dtype", "values", ...}], ...}. Numbers
/// read back to the same bits; a hidden pair is null; nan, inf and -inf are strings.
ATTN_API std::string to_json(const Explanation& explanation);
/// A drawing of its own (no fonts, scripts or styles from elsewhere), for light and dark pages.
ATTN_API std::string to_svg(const Explanation& explanation);

}  // namespace attn
