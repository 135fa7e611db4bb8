// fuzz/plain.cc: calls attn::plain: it must return an error status or the bits of `attention`, and touch nothing
// outside the buffers.
#include "plain_call.h"

#include <memory>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const PlainCall made = plain_call(in);
  const plain::Attention& c = made.call;
  const plain::Executor executor{.threads = static_cast<int>(in.between(1, 3))};
  const std::size_t bytes = plain::workspace_bytes(c, executor), given = in.below(5) == 0 ? bytes / 2 : bytes;
  check(bytes < 1U << 26, "a workspace of " + std::to_string(bytes) + " bytes");
  const auto workspace = std::make_unique<std::byte[]>(given);
  const Tensor before = made.output.clone();
  const plain::Status status = plain::attention(c, workspace.get(), given, executor);
  if (status != plain::Status::ok) {
    check_clean(plain::text_of(status), /*lines=*/false);
    check(same_bits(before, made.output), "it has written, though it failed");
    return 0;
  }
  AttentionOptions options{.scale = c.scale, .softcap = c.softcap, .temperature = c.temperature};
  const Align align = c.bottom_right ? Align::bottom_right : Align::top_left;
  if (c.causal) options.mask = Mask::causal(align);
  if (c.window_left >= 0 || c.window_right >= 0)
    options.mask = options.mask & Mask::window(c.window_left, c.window_right, align);
  Tensor expected;
  check(answers([&] { expected = attention(made.q, made.k, made.v, options).output; }),
        "plain takes what attention does not");
  check(same_bits(expected, made.output), "other bits below the tensors");
  return 0;
}
