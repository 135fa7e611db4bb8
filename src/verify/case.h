// src/verify/case.h: defines a case of an operation, written as a line of text. Tests, `attn bench` and `attn verify`
// read the same tables of cases.
#pragma once
#include <attn/dtype.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attn::cases {

/// Holds a line such as "attention f32 B=1 Hq=12 Tq=512 D=64 mask=causal": an operation, a dtype, then fields in any
/// order. A field that the line does not give has the value below. Where a field has another one in parentheses, 0
/// means the size of that one.
struct Case {
  // The operation: attention, attention_decode, attention_backward, matmul, softmax, log_softmax, layer_norm, sum, exp,
  // tanh, ...; linear_attention, linear_attention_backward, causal_conv
  std::string op = "attention";
  Dtype dtype = Dtype::f32;

  // fields of attention
  std::int64_t batch = 1, q_heads = 1, k_heads = 0, v_heads = 0;  // B Hq Hk(Hq) Hv(Hk)
  std::int64_t q_rows = 1, k_rows = 0, dim = 64, value_dim = 0;   // Tq Tk(Tq) D Dv(D)
  // The mask: none, bool (dense [Tq, Tk]), documents, blocks(Q,K,n) (n blocks of K keys for each Q rows of a key head;
  // &EXPRESSION), or an expression: causal(bottom_right)&window(100,0,bottom_right)
  std::string mask = "none";
  std::string score = "dot";  // dot (scaled), general, or additive with A channels
  std::int64_t channels = 0;  // A(D)
  // The bias: none, dense [Hq, Tq, Tk], pairs [Tq, Tk], item [B, 1, Tq, Tk], key [B, 1, 1, Tk] with -inf for padding,
  // alibi, relative, alibi_symmetric; relative products as in Shaw's relative_keys, conformer, DeBERTa's disentangled
  // terms, and a picture
  std::string bias = "none";
  // The score expression: none, or one without spaces that uses slope [Hq], table [32, Hq], bucket [257] (T5's)
  std::string score_mod = "none";
  // The lengths that are given: none, keys, rows, starts, all; packed: B sequences of Tq / 32 to Tq rows, one after
  // another
  std::string lengths = "none";
  // attention: plain, `turned` (transposed, [B, T, H, D] in memory); matmul: nn, nt, tn.
  std::string layout = "plain";
  std::string hidden = "plain";  // K and V of keys that no row sees by lengths or mask=bool: plain or nan
  double scale = 0;              // of the dot product; 0: 1/sqrt(D)
  double softcap = 0, temperature = 1, dropout = 0;
  std::int64_t sinks = 0;  // 1: one sink for each head
  // which attention weights the call returns: none, full, head_average, column_sums, rows (every fifth), top_k (4)
  std::string weights = "none";
  // how a cache stores K and V: none, block (one for each sequence), pages16 ... pages256; its sequences are the batch
  // items
  std::string cache = "none";
  std::string storage = "same";  // dtype of the cache: same, int8
  std::string values = "own";    // v: own, or in_keys: the first Dv elements of k, as in latent attention

  std::int64_t m = 1, n = 1, k = 1, bias_row = 0;  // matmul: M N K addend(0 or 1); rows: N
  std::int64_t packed = 0;                         // only for the bench; 1: weights are packed once before the products
  std::string blocks = "none";                     // matmul: the format of b as quantised weights, Q4_1 and others
  std::int64_t rows = 1;                           // softmax and other row operations: rows of N elements

  // linear attention with a state: Hq heads of q and k, Hv of v; causal_conv: N channels, Tq rows, K taps
  std::string gate = "none";  // the decay: none, head, channel
  std::int64_t delta = 0;     // 1: with beta, the delta rule

  std::int64_t idle_us = 0;  // only for the bench: the caller sleeps before each call

  bool is_attention() const { return op == "attention" || op == "attention_decode" || is_backward(); }
  bool has_relative_products() const {
    return bias == "relative_keys" || bias == "conformer" || bias == "disentangled" || bias == "picture";
  }
  bool is_cached() const { return cache != "none"; }
  bool is_backward() const { return op == "attention_backward"; }
  bool is_recurrent() const { return op.starts_with("linear_attention") || op == "causal_conv"; }
  bool is_recurrent_backward() const { return op == "linear_attention_backward"; }
};

/// Parses a line. ValueError names the word that was not understood and the valid words.
Case parse_case(const std::string& line);
/// Returns the line for a case; fields with default values are left out.
std::string to_line(const Case& c);

/// The uses of a case: the quick verification, the full verification, the bench.
enum Use : unsigned { smoke = 1, full = 2, bench = 4 };
/// Returns the cases of tests/cases/, operation by operation; `uses` is a sum of Use values.
std::vector<std::string> case_lines(unsigned uses);

}  // namespace attn::cases
