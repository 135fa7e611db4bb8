// fuzz/mask.cc: parses texts of masks: the printed text must parse to the same mask, and attention must agree with
// `dense`.
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const std::int64_t rows = in.below(20), keys = in.coin() ? rows : in.below(90), heads = in.between(1, 2);
  const Lengths lengths =
      in.coin() ? Lengths{.key_lengths = tensor<std::int64_t>({in.between(0, static_cast<int>(keys))})} : Lengths{};
  const std::string text = in.rest();
  Mask mask;
  if (!answers([&] { mask = Mask::parse(text); })) return 0;
  const std::string printed = mask.to_string();
  check(Mask::parse(printed).to_string() == printed, "printed again it is other than " + printed);

  Tensor seen;
  const bool fits = answers([&] { seen = mask.dense(1, heads, rows, keys, lengths); });
  check(fits == answers([&] { (void)mask.print(rows, keys, lengths); }),
        "dense and print disagree on whether it fits: " + printed);
  check(fits == answers([&] { (void)mask.check(1, heads, rows, keys, lengths); }),
        "dense and check disagree on whether it fits: " + printed);
  manual_seed(7);
  const Tensor q = randn({1, heads, rows, 5}), k = randn({1, heads, keys, 5}), v = randn({1, heads, keys, 3});
  AttentionOptions options{.mask = mask, .key_lengths = lengths.key_lengths};
  Tensor output;
  check(fits == answers([&] { output = attention(q, k, v, options).output; }),
        "dense and attention disagree on whether it fits: " + printed);
  if (!fits) return 0;
  options.mask = Mask::attend(seen);
  check(same_bits(output, attention(q, k, v, options).output), "attention sees other keys than dense says: " + printed);
  const Tensor none_but = (~mask).dense(1, heads, rows, keys);
  check(same_bits(logical_not(mask.dense(1, heads, rows, keys)), none_but), "~ is not the opposite: " + printed);
  return 0;
}
