// fuzz/call_file.cc: reads files of `attn run`, JSON or safetensors: each gives a result, or an error line with the
// reason.
#include "cli/call.h"
#include "cli/output.h"
#include "folder.h"
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

static void run(const std::string& path) {
  const cli::Call file = cli::load_call(path);
  cli::check_tables(file);
  const cli::AttentionCall call = cli::to_attention(file);
  for (const Tensor* tensor : {&call.q, &call.k, &call.v})
    for (const std::int64_t rows : tensor->sizes())
      if (rows > 128) return;
  const auto attend = [&] { return attention(call.q, call.k, call.v, call.options).output; };
  const Tensor one = attend();
  set_num_threads(2);
  check(same_bits(one, attend()), "other bits on two threads");
  (void)one.to_string();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string path = folder.write("call", data, size);
  set_num_threads(1);
  answers([&] {
    try {
      run(path);
    } catch (const cli::UsageError& error) {
      finding("a mistake of the file is called one of the command line: " + error.text);
    } catch (const Error& error) {  // as the command prints it
      throw Error(cli::one_line(error.what()));
    }
  });
  return 0;
}
