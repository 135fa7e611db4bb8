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
  return 0;
}
