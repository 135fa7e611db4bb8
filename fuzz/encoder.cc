// fuzz/encoder.cc: reads an encoder's config.json, and its folder with one text replaced: it gives rows and vectors,
// the same for a text alone as beside others, or an error says why not.
#include "encoder_folder.h"
#include "fuzz.h"

#include <attn/encoder.h>

#include <filesystem>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  static const bool begun = [] {
    std::filesystem::create_directory(folder.path() + "/pooling");
    write_encoder_weights(folder);
    return true;
  }();
  Choices in(data, begun ? size : 0);
  const auto which = static_cast<std::size_t>(in.below(static_cast<int>(encoder_files.size())));
  const std::string given = in.rest();
  for (const auto& [name, text] : encoder_files) folder.write(name, text.data(), text.size());
  folder.write(encoder_files[which].first, given.data(), given.size());
  answers([&] {
    const EncoderConfig config = EncoderConfig::from_json(given);
    check(config == EncoderConfig::from_json(given), "read again it is another");
    answers([&] { config.check(); });
  });
  answers([&] {
    const TextEncoder encoder = TextEncoder::load(folder.path());
    const Tensor rows = encoder.hidden(tensor<std::int64_t>({1, 2, 0}), tensor<std::int64_t>({0, 2, 3}));
    check(rows.sizes() == Dims({3, encoder.config.width}), "rows of another shape");
    const Tensor both = encoder.embed({"a b", "bc a"}), alone = encoder.embed({"bc a"});
    check(alone.sizes() == Dims({1, encoder.dim()}) && same_bits(both.slice(0, 1, 2), alone), "another vector alone");
  });
  return 0;
}
