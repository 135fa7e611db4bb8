// tests/cli/train_terminal_test.cc: the progress bar of attn train, as terminals of several widths show it.
#include "cli/command.h"
#include "cli/terminal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <regex>

namespace attn::testing {
namespace {

/// What kind of terminal it is does not come from where the tests run.
std::vector<std::string> training(const Folder& folder, const std::string& out, const std::string& steps = "24",
                                  const std::string& terminal = "xterm") {
  std::string text;
  while (text.size() < 2000) text += "attention is all you need.\n";
  return {"/usr/bin/env",
          "TERM=" + terminal,
          command_path(),
          "train",
          folder.write("text", text),
          "--out",
          folder.file(out),
          "--context",
          "16",
          "--batch",
          "2",
          "--steps",
          steps,
          "--eval-every",
          "8"};
}

/// The screen from the bar's first drawing on: what stands before it are whole lines.
Screen screen_of_bar(const std::string& bytes, int width) {
  Screen screen(width);
  const std::size_t introduced = bytes.find('\n', bytes.find(" thread"));
  EXPECT_NE(introduced, std::string::npos) << bytes;
  screen.take(bytes.substr(introduced + 1));
  return screen;
}

TEST(TrainTerminal, OneLineIsDrawnAgainAndAgain) {
  for (const int width : {200, 80, 54, 40, 24, 10, 5}) {
    SCOPED_TRACE(width);
    const Folder folder;
    const Shown shown = on_terminal(training(folder, "out"), width);
    EXPECT_EQ(shown.code, 0) << shown.bytes;
    const Screen screen = screen_of_bar(shown.bytes, width);
    EXPECT_EQ(screen.unknown(), "");
    EXPECT_GE(screen.returns(), 5);  // 0/24, three validations, the end
    const std::string& bar = screen.lines()[0];
    EXPECT_LT(bar.size(), static_cast<std::size_t>(width));
    EXPECT_NE(bar.find(width > 5 ? "24/24" : "24/2"), std::string::npos) << bar;
    // What follows the bar is the command's last line, wrapped where it must be: no other line came between.
    ASSERT_GT(screen.lines().size(), 1u);
    EXPECT_EQ(
        screen.lines()[1].rfind(std::string("best validation loss").substr(0, static_cast<std::size_t>(width)), 0), 0u)
        << screen.lines()[1];
    const auto says = [&](const char* pattern) { return std::regex_search(bar, std::regex(pattern)); };
    if (width >= 80 || width < 40) {  // between: it depends on how much time was left
      EXPECT_EQ(says("^\\[=+ *\\] 24/24"), width >= 80) << bar;
    }
    EXPECT_EQ(says("loss [0-9]\\.[0-9]{4}"), width >= 24) << bar;
    EXPECT_EQ(says("in [0-9]+[smh]"), width >= 40) << bar;
    EXPECT_EQ(says("validation [0-9]\\.[0-9]{4}"), width >= 54) << bar;
    EXPECT_EQ(says("[0-9.k]+ tokens/s"), width >= 80) << bar;
  }
}

TEST(TrainTerminal, TheBarIsThereBeforeTheFirstStepAndSaysHowLong) {
  const Folder folder;
  const Shown shown = on_terminal(training(folder, "out"), 100);
  EXPECT_TRUE(std::regex_search(shown.bytes, std::regex("\r\\[ +\\]  0/24\x1b\\[K"))) << shown.bytes;
  EXPECT_TRUE(std::regex_search(shown.bytes, std::regex("[0-9]+[smh0-9]* left\x1b\\[K"))) << shown.bytes;
  EXPECT_EQ(shown.bytes.find("left", shown.bytes.rfind('\r', shown.bytes.rfind("24/24"))), std::string::npos)
      << shown.bytes;
}

TEST(TrainTerminal, StoppedItLeavesAWholeLine) {
  const Folder folder;
  bool sent = false;
  const Shown shown = on_terminal(training(folder, "out", "100000"), 80, [&](const std::string& bytes, pid_t id) {
    if (!sent && bytes.find("loss") != std::string::npos) sent = ::kill(id, SIGINT) == 0;
  });
  EXPECT_EQ(shown.code, 0) << shown.bytes;
  const Screen screen = screen_of_bar(shown.bytes, 80);
  EXPECT_TRUE(std::regex_search(screen.lines()[0], std::regex("[0-9]+/100000  loss"))) << screen.lines()[0];
  EXPECT_EQ(screen.lines()[1].rfind("stopped at step ", 0), 0u) << screen.lines()[1];
}

TEST(TrainTerminal, ATerminalThatTakesNothingBackGetsLines) {
  const Folder folder;
  const Shown shown = on_terminal(training(folder, "out", "24", "dumb"), 80);
  EXPECT_EQ(shown.code, 0) << shown.bytes;
  EXPECT_EQ(shown.bytes.find('\x1b'), std::string::npos);
  EXPECT_NE(shown.bytes.find("step 24/24  loss "), std::string::npos) << shown.bytes;
}

}  // namespace
}  // namespace attn::testing
