// fuzz/tokenizer.cc: reads texts of tokenizer.json: ids must be in range, and what is written must read back as the
// same tokenizer.
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string json = Choices(data, size).rest();
  Tokenizer tokenizer, again;
  if (!answers([&] { tokenizer = Tokenizer::parse(json); })) return 0;
  check(answers([&] { again = Tokenizer::parse(tokenizer.to_json()); }), "what it writes is not read");
  check(again.to_json() == tokenizer.to_json(), "written twice it is not the same");
  const std::string samples[] = {"",
                                 "Hello, the world's 123 best\n\n  x",
                                 "\xE4\xBD\xA0\xE5\xA5\xBD e\xCC\x81\xC3\xA9",
                                 std::string("\xFF\xFE\0a", 4),
                                 "<unk><s></s>  \t",
                                 "ab abab aab",
                                 "\xEF\xBB\xBF\xE2\x96\x81x"};
  for (const std::string& sample : samples) {
    std::vector<std::int64_t> ids, other;
    const bool known = answers([&] { ids = tokenizer.encode(sample, true); });
    check(known == answers([&] { other = again.encode(sample, true); }) && ids == other,
          "read again it encodes another way");
    for (const std::int64_t id : ids) check(id >= 0 && id < tokenizer.size(), "an id out of range");
    answers([&] { check(tokenizer.decode(ids) == again.decode(ids), "read again it decodes another way"); });
    answers([&] {  // a decoder of tokens may look at the one before
      check(tokenizer.kind() > Tokenizer::Kind::bpe ||
                tokenizer.decode(ids, true).size() <= tokenizer.decode(ids).size() + 1,
            "longer without its special tokens");
      const EncodedText pair = tokenizer.encode_pair(sample, samples[1], 9);
      check(pair.ids.size() <= 9 && pair.type_ids.size() == pair.ids.size(), "longer than it may be");
      check(again.encode_pair(sample, samples[1], 9).ids == pair.ids, "read again it encodes pairs another way");
    });
  }
  return 0;
}
