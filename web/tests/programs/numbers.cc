// web/tests/programs/numbers.cc: prints what from_chars reads of numbers and of what is none; the same natively and as
// WebAssembly.
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <system_error>

int main() {
  for (const std::string_view text : {"0",
                                      "-0",
                                      "1.5",
                                      "-1.5e3x",
                                      ".5",
                                      "5.",
                                      ".",
                                      "-",
                                      "",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1e",
                                      "1e+",
                                      "1e5",
                                      "1E-5",
                                      "0x10",
                                      "inf",
                                      "-Infinity",
                                      "infinit",
                                      "nan",
                                      "-nan",
                                      "naN",
                                      "1e400",
                                      "-1e400",
                                      "1e-400",
                                      "0e-400",
                                      "0.000e400",
                                      "1e308",
                                      "4.9e-324",
                                      "2.4e-324",
                                      "2.5e-324",
                                      "0.1",
                                      "0.30000000000000004",
                                      "9007199254740993",
                                      "1.7976931348623157e308",
                                      "1.7976931348623159e308",
                                      "123456789012345678901234567890",
                                      "1..2",
                                      "1.2.3",
                                      "--1",
                                      "e5",
                                      "-.e1",
                                      "2.2250738585072011e-308"}) {
    double value = 7;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::printf("\"%.*s\" %d characters, error %d, %016llx\n", static_cast<int>(text.size()), text.data(),
                static_cast<int>(end - text.data()),
                error == std::errc()                   ? 0
                : error == std::errc::invalid_argument ? 1
                                                       : 2,
                static_cast<unsigned long long>(value != value ? 0 : std::bit_cast<std::uint64_t>(value)));
  }
}
