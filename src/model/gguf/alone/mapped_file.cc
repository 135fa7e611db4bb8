// src/model/gguf/alone/mapped_file.cc: reads a file whole, in builds that cannot map (WebAssembly).
#include "model/gguf/mapped_file.h"

#include "io/source.h"
#include "runtime/memory.h"

#include <new>

namespace attn::gguf {

std::unique_ptr<const Bytes> map_file(const char* function, const std::string& path) {
  const io::FileSource file(function, path);
  if (file.size() > runtime::most_bytes) throw std::bad_alloc();  // more than a size of 32 bits can say
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes.data(), bytes.size());
  return owned(std::move(bytes));
}

}  // namespace attn::gguf
