// include/attn/explain.h: runs attention on a text as named steps with all their numbers, and writes them as text, JSON
// or SVG.
#pragma once
#include <attn/attention.h>
#include <attn/cache.h>
#include <attn/mask.h>
#include <attn/tensor.h>
#include <attn/text.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// The language of titles, formulas, notes and sources. Names are the same in all languages.
enum class Language { en, zh };

/// How positions are encoded: not at all, added to x (Vaswani 2017), or as a rotation of q and k (Su 2021, 2104.09864).
enum class Positions { none, sinusoidal, rotary };

/// Why a pair is masked: the field `hidden` of an explanation's JSON. `mask`: by a part of the mask that is neither
/// causal nor a window; `score`: its score became -inf; `not_returned`: the pair does take part, but its weight is not
/// among those that were requested.
enum class Hidden : std::uint8_t { visible, causal, window, mask, padding, score, not_returned };

/// The bias added to the scores: ALiBi, a relative-position table of 8 buckets drawn with rand, or ALiBi by absolute
/// distance.
enum class ExplainBias { none, alibi, relative, alibi_symmetric };

/// Options of `explain`. The defaults are those of a first lesson: Embedding(50000, 3); w_query and w_key rand(3, 2),
/// w_value rand(3, 4). The generator is seeded with `seed` before the embedding and again before the matrices.
struct ExplainOptions {
  std::optional<std::string> to = std::nullopt;  ///< cross-attention: keys and values come from this text
  Score::Kind score = Score::Kind::scaled_dot;
  Mask mask = {};
  std::int64_t heads = 1;
  std::int64_t dim = 3;             ///< size of an embedding
  std::int64_t dk = 2;              ///< size of a query and a key of one head
  std::int64_t dv = 4;              ///< size of a value of one head
  std::int64_t vocabulary = 50000;  ///< rows of the random embedding
  std::uint64_t seed = 123;
  Positions positions = Positions::none;
  text::Tokens tokens = text::Tokens::automatic;
  /// Splits text that has no spaces (Chinese, Japanese) into words. Used when `tokens` is `words`, which otherwise
  /// splits at white space only.
  std::function<std::vector<std::string>(const std::string&)> cut_words = {};
  /// The caller's matrices instead of random ones: w_query, w_key [dim, heads * dk], w_value [dim, heads * dv], or
  /// [heads, dim, dk] and so on. Give all three or none; they set dim, dk and dv. `embedding` [ids, dim] may be given
  /// alone.
  Tensor w_query = {}, w_key = {}, w_value = {}, embedding = {};
  /// Adds W_O [heads * dv, dim]: the step `output` is the joined heads times W_O. It is drawn after W_v, or it is the
  /// caller's `w_output` [heads * dv, any].
  bool output_projection = false;
  Tensor w_output = {};
  /// The query is one learned vector u instead of the tokens (attention pooling): q = u W_q, one row. It is drawn last,
  /// with randn, or it is the caller's `query_vector` of dim numbers. `to` must not be given.
  bool learned_query = false;
  Tensor query_vector = {};
  /// The caller's matrices of the score instead of random ones: general score_w [dk, dk]; additive score_w_query,
  /// score_w_key [n, dk] and score_w [n].
  Tensor score_w_query = {}, score_w_key = {}, score_w = {};
  double softcap = 0, temperature = 1;  ///< as in AttentionOptions
  ExplainBias bias = ExplainBias::none;
  ScoreExpression score_mod = {};
  std::optional<double> sink = std::nullopt;  ///< a logit, the same for each head
  double dropout_p = 0;                       ///< counter-based dropout, seeded with `seed`
  Weights weights = Weights::none;            ///< shown in an extra step
  /// adds a step that compares the sentences concatenated as packed sequences
  bool packed = false;
  /// Adds steps that show the keys and values read from a cache, and the results with them.
  std::optional<KvStorage> cache = std::nullopt;
  /// this row (from 0) is worked out in detail: every product and sum
  std::optional<std::int64_t> query = std::nullopt;
  /// Adds the backward pass for the loss L = 1/2 sum of context^2 (with W_O: of output^2): the gradients of the
  /// output, the context, v, the weights after and before dropout, the scores that enter softmax, the scores before
  /// temperature, score_mod and softcap, and q and k.
  bool gradients = false;
  /// Names of the steps that text, JSON and SVG show; empty: all. The explanation holds all of them.
  std::vector<std::string> only = {};
  Language language = Language::en;
};

/// One step: a name, a formula, and numbers with labels for rows and columns.
struct ExplainStep {
  enum class Kind {
    words,    ///< tokens: `rows` holds them; there are no values
    ids,      ///< i64, one per token
    table,    ///< one vector per row
    pairs,    ///< queries as rows, keys as columns
    weights,  ///< pairs that are shares of a row: drawn as a heat map
    keys,     ///< rows are keys, columns are the stages of one query's sum
    checks,   ///< i64, 1 where the statement in `note` holds
  };
  Kind kind = Kind::table;
  /// The operation that makes each number, such as "dot" of the rows of "q" and "k". docs/explain_json.md defines each
  /// name.
  struct Operation {
    std::string name;
    std::vector<std::string> inputs = {};          ///< names of steps and parameters
    std::optional<double> operand = std::nullopt;  ///< a number used besides the inputs, such as a divisor
  };
  std::string name;     ///< "scores"; the same in every language
  std::string title;    ///< in the requested language
  std::string formula;  ///< "q · k"
  std::string note;     ///< the term in a few words
  std::string source;   ///< the origin of the numbers, in words
  Dims shape;           ///< the shape of `values`: [B, H, rows, columns] without unused dims
  Tensor values;        ///< f32, f64 or i64
  std::int64_t batch = 1, heads = 1;
  bool key_rows = false;                                ///< the rows are tokens of the keys (k, v), not of the queries
  std::vector<std::vector<std::string>> rows, columns;  ///< labels of rows and columns, one list per sentence
  std::vector<Hidden> hidden;                           ///< one per value, or empty
  Operation operation = {};
  /// for the query that is worked out: its largest score and its sum of exponentials, one per sentence and head
  std::vector<double> maximum = {}, total = {};
  /// for a step of tokens: where each token begins and ends in its text, in characters (code points); -1, -1 if the
  /// token does not occur in the text
  std::vector<std::vector<std::array<std::int64_t, 2>>> places = {};
};

/// A run of attention, step by step. `to_text`, `to_json` and `to_svg` only draw it.
struct ATTN_API Explanation {
  static constexpr int version = 1;
  std::vector<std::string> texts;
  std::optional<std::string> to;
  bool batch = false;
  Language language = Language::en;
  std::string mask;  ///< the mask's notation; empty when nothing is masked
  std::optional<std::int64_t> query;
  std::string options;  ///< the options as JSON, which `explain_options` reads; empty for a head of a trained model
  std::vector<ExplainStep> steps;
  std::vector<std::string> only;  ///< the steps that are drawn; empty: all
  /// W_q, W_k, W_v, W_O and the score's own parameters, so that every number can be checked
  std::vector<ExplainStep> parameters;

  /// Returns the step of that name; ValueError lists the existing names.
  const ExplainStep& step(const std::string& name) const;
};

/// Runs attention on a text and keeps every step. Several texts make a batch, padded on the right. Scores have the bits
/// of `attention_scores`, weights and context those of `attention`.
/// Errors   ValueError (no token, more than 2048 tokens, a query or a step of `only` that does not exist, learned_query
///          with `to`), ShapeError (the caller's matrices or a mask do not fit).
ATTN_API Explanation explain(const std::string& text, const ExplainOptions& options = {});
ATTN_API Explanation explain_batch(const std::vector<std::string>& texts, const ExplainOptions& options = {});

/// What `to_text` must know of the terminal. The caller detects it.
struct TextOptions {
  enum class Colour { none, palette, rgb };  ///< `palette`: 256 colours
  int width = 100;
  Colour colour = Colour::none;
};
/// Returns tables for a terminal, at most `width` columns wide (at least 40). East Asian characters count as two
/// columns. Long sentences are shown in part, and the text says which part.
ATTN_API std::string to_text(const Explanation& explanation, const TextOptions& options = {});
/// Returns {"attn_explain": 1, "text", "steps": [{"name", "title", "formula", "shape", "dtype", "values", ...}], ...}.
/// Numbers that are read back have the same bits; a masked pair is null; nan, inf and -inf are strings.
ATTN_API std::string to_json(const Explanation& explanation);
/// Returns a self-contained SVG drawing (no external fonts, scripts or styles) for light and dark pages.
ATTN_API std::string to_svg(const Explanation& explanation);

}  // namespace attn
