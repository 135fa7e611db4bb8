// fuzz/translation.cc: reads an encoder-decoder's folder with one file replaced, also the SentencePiece models: it says
// texts, the same for a text alone as beside others, or an error says why not.
#include "fuzz.h"
#include "translation_folder.h"

#include <attn/translation.h>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  static const bool begun = (write_translation_weights(folder), true);
  Choices in(data, begun ? size : 0);
  const auto which = static_cast<std::size_t>(in.below(static_cast<int>(translation_files.size())));
  const std::string given = in.rest();
  for (const auto& [name, text] : translation_files) folder.write(name, text.data(), text.size());
  folder.write(translation_files[which].first, given.data(), given.size());
  answers([&] {
    const EncoderDecoderConfig config = EncoderDecoderConfig::from_json(given);
    check(config == EncoderDecoderConfig::from_json(given), "read again it is another");
    answers([&] { config.to_json(); });
  });
  answers([&] {
    const Translator translator = Translator::load(folder.path());
    TranslateOptions options = translator.defaults;
    options.tokens = std::min<std::int64_t>(options.tokens, 6);  // so that an input takes no minutes
    options.beams = std::min<std::int64_t>(options.beams, 4);
    const auto both = translator.translate({"b a", "ab \xE4\xBD\xA0 b"}, options),
               alone = translator.translate({"ab \xE4\xBD\xA0 b"}, options);
    check(both.size() == 2 && both[1][0].tokens == alone[0][0].tokens, "another text alone");
    for (const std::int64_t id : alone[0][0].tokens)
      check(id >= 0 && id < translator.model.config.decoder_vocab_size, "an id out of range");
    translator.decode(translator.encode_target("b ab"));
  });
  return 0;
}
