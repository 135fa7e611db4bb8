// tests/faults/save_test.cc: each call of a save to the system fails, does half of its work, or is the last of the
// process: what stood there stands there whole, or what was saved does.
#include "faults/saved.h"
#include "support/errors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

extern char** environ;

namespace attn::testing {
namespace {

struct Ended {
  int code;  // minus the signal
  std::string err;
};

/// faults_child with a fault.
Ended run_child(const Folder& scratch, const std::string& what, const std::string& folder, int version,
                const std::string& fault, const std::string& system) {
  std::vector<std::string> words = {ATTN_FAULTS_CHILD, what, folder, std::to_string(version)};
  std::vector<std::string> variables = {std::string("LD_PRELOAD=") + ATTN_FAULTS_PRELOAD, "ATTN_FAULT=" + fault,
                                        "ATTN_FAULT_SYSTEM=" + system, "ATTN_FAULT_CALLS=" + (scratch / "calls"),
                                        "ATTN_THREADS=1"};
  std::vector<char*> argv, environment;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string err = scratch / "err";
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  pid_t id = 0;
  if (posix_spawn(&id, argv[0], &files, nullptr, argv.data(), environment.data()) != 0) std::abort();
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  ::waitpid(id, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), content_of(err)};
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class Saves : public ::testing::TestWithParam<std::string> {
 protected:
  Saves() {
    std::filesystem::create_directory(scratch_ / "first");
    EXPECT_EQ(run_child(scratch_, GetParam(), scratch_ / "first", 1, "", "").code, 0);
  }
  /// Version 2 over version 1 with a fault; then what a user finds.
  void attempt(const std::string& fault, const std::string& system) {
    SCOPED_TRACE(GetParam() + ", fault \"" + fault + "\" on a system \"" + system + "\"");
    const std::string folder = scratch_ / "run";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(scratch_ / "first", folder, std::filesystem::copy_options::recursive);
    const Ended ended = run_child(scratch_, GetParam(), folder, 2, fault, system);
    int version = 0;
    ASSERT_NO_THROW(version = version_in(GetParam(), folder)) << "what stands there is neither";
    if (ended.code == 0) {
      EXPECT_EQ(version, 2) << "it was said to be saved";
      EXPECT_EQ(ended.err, "");
      EXPECT_EQ(names_in(folder), names_in(scratch_ / "first"));
    } else if (ended.code == 1) {
      EXPECT_NE(ended.err.find(folder), std::string::npos) << "names the file: " << ended.err;
      EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    } else {
      EXPECT_EQ(ended.code, -SIGKILL) << ended.err;
    }
    // Whatever was left goes with the next save.
    ASSERT_EQ(run_child(scratch_, GetParam(), folder, 2, "", system).code, 0);
    EXPECT_EQ(version_in(GetParam(), folder), 2);
    EXPECT_EQ(names_in(folder), names_in(scratch_ / "first"));
  }
  void attempt_at_each_call(std::initializer_list<const char*> kinds) {
    for (const std::string system : {"", "named"}) {
      attempt("", system);
      long calls = 0;
      std::istringstream text(content_of(scratch_ / "calls"));
      text >> calls;
      ASSERT_GT(calls, 8);
      for (long call = 1; call <= calls; ++call)
        for (const char* kind : kinds) attempt(std::to_string(call) + " " + kind, system);
    }
  }
  Folder scratch_;
};

TEST_P(Saves, ACallThatFails) { attempt_at_each_call({"ENOSPC", "EIO", "EINTR"}); }
TEST_P(Saves, ACallThatIsTheLast) { attempt_at_each_call({"kill", "torn"}); }
TEST_P(Saves, AWriteThatDoesHalf) { attempt_at_each_call({"short"}); }
TEST_P(Saves, WritesOfAFewBytesEach) { attempt("", "drip"); }

INSTANTIATE_TEST_SUITE_P(Faults, Saves, ::testing::ValuesIn(kSaved), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace attn::testing
