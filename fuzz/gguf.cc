// fuzz/gguf.cc: reads GGUF files: tensors lie within the file and are decoded; a model and a tokenizer are made of it,
// or an error says why not.
#include "folder.h"
#include "fuzz.h"

#include <span>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  answers([&] {
    const GgufFile file = GgufFile::parse(std::as_bytes(std::span(data, size)));
    std::uint64_t held = 0;
    for (const GgufFile::Entry& entry : file.tensors()) {
      check(entry.begin <= size && entry.bytes <= size - entry.begin, "a tensor beyond the file");
      held += entry.bytes;
      check(file.tensor(entry.name).sizes() == entry.sizes, "a tensor of another shape");
    }
    check(held <= size, "its tensors hold more bytes than the file");
    for (const std::string& key : file.keys()) {
      answers([&] { file.integers(key); });
      answers([&] { file.number(key); });
      answers([&] { file.texts(key); });
    }
  });
  static const Folder folder;
  const std::string path = folder.write("m.gguf", data, size);
  answers([&] {
    const LanguageModel model = LanguageModel::load(path);
    check(model.config.parameters() <= static_cast<std::int64_t>(4 * size), "more weights than the file can hold");
    check(model(zeros({1, 1}, Dtype::i64)).size(2) == model.config.vocab_size, "logits of another shape");
  });
  answers([&] {
    const Tokenizer tokenizer = Tokenizer::load(path);
    for (const std::int64_t id : tokenizer.encode("a b\xFF 12", true)) tokenizer.bytes(id);
  });
  return 0;
}
