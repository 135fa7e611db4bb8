// src/ranks/digest.cc: describes tensors in the texts that ranks compare.
#include "ranks/digest.h"

#include <attn/dtype.h>

#include "io/checksum.h"
#include "runtime/format.h"

#include <cstddef>
#include <span>

namespace attn {

std::string text_of_tensor(std::string_view name, const Tensor& x) {
  if (!x.defined()) return runtime::format("{} undefined", name);
  const Tensor values = x.detach().contiguous();
  const std::span bytes(static_cast<const std::byte*>(values.data()),
                        static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
  return runtime::format("{} {} {} {:016x}", name, name_of(x.dtype()), to_string(x.sizes()), io::xxh64(bytes));
}

}  // namespace attn
