// fuzz/text.cc: converts texts to tokens and back: words and their width; a tokenizer trained on a text must reproduce
// it.
#include "fuzz.h"

#include <algorithm>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const auto kind = in.pick({Tokenizer::Kind::characters, Tokenizer::Kind::words, Tokenizer::Kind::bpe});
  const std::int64_t vocabulary = kind == Tokenizer::Kind::characters ? 0
                                  : kind == Tokenizer::Kind::bpe      ? in.between(256, 400)
                                                                      : in.below(9);
  const auto tokens = in.pick({text::Tokens::words, text::Tokens::characters, text::Tokens::automatic});
  const int columns = static_cast<int>(in.below(30));
  const std::string whole = in.rest();
  check(text::display_width(text::truncate_to_width(whole, columns)) <= columns, "wider than the limit");
  answers([&] {
    const std::vector<std::string> parts = text::split(whole, tokens);
    for (const std::string& part : parts) check(!part.empty() && !text::invalid_utf8(part), "a token that is none");
    const text::Vocabulary known(parts);
    check(known.decode(known.encode(parts)) == parts, "a vocabulary gives other tokens back");
    const bool ascii = std::all_of(whole.begin(), whole.end(), [](unsigned char byte) { return byte < 0x80; });
    const bool same = text::split(text::join(parts), text::Tokens::words) == parts;
    check(same || !ascii || tokens == text::Tokens::characters, "joined and split again they are others");
  });
  Tokenizer tokenizer;
  if (!answers([&] { tokenizer = Tokenizer::train(whole, kind, vocabulary); })) return 0;
  const Tokenizer again = Tokenizer::parse(tokenizer.to_json());
  const std::vector<std::int64_t> ids = tokenizer.encode(whole);
  check(again.encode(whole) == ids, "read again it encodes another way");
  if (kind != Tokenizer::Kind::words || vocabulary == 0)
    check(tokenizer.decode(ids) == whole, "decoded it is another text");
  check(again.decode(ids) == tokenizer.decode(ids), "read again it decodes another way");
  return 0;
}
