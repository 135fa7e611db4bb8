// tests/io/write_test.cc: a file appears whole or not at all, and what stood there before stays until then.
#include "io/files.h"
#include "io/write.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace attn {
namespace {

using testing::Bytes;
using testing::error_of;
using testing::Folder;

void write(const std::string& path, std::string_view text) {
  io::write_whole("save", path, {std::as_bytes(std::span(text))});
}

TEST(WriteWhole, ReplacesAFile) {
  const Folder folder;
  write(folder.file("x"), "first");
  write(folder.file("x"), "2");
  EXPECT_EQ(testing::read_file(folder.file("x")), testing::bytes_of("2"));
  EXPECT_EQ(folder.entries(), 1u);
}

/// Where the system has files without a name (Linux, but for network and some stacked ones), a process killed in the
/// middle leaves nothing.
TEST(WriteWhole, WhoIsKilledWhileWritingLeavesNothing) {
  const Folder folder;
  write(folder.file("x"), "old");
  if (const int nameless = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0666); nameless < 0)
    GTEST_SKIP() << "no files without a name here";
  else close(nameless);
  const std::string large(8 << 20, 'l');
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) write(folder.file("x"), large);
    }
    usleep(static_cast<useconds_t>(1000 + 700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Bytes seen = testing::read_file(folder.file("x"));
    EXPECT_TRUE(seen == testing::bytes_of("old") || seen == testing::bytes_of(large));
    write(folder.file("y"), "next");  // between a name and the rename: the next save in this folder tidies up
    EXPECT_EQ(folder.entries(), 2u) << round;
  }
}

TEST(WriteWhole, TheNextSaveRemovesWhatAKilledOneLeft) {
  const Folder folder;
  testing::write_file(folder.file(".attn-99999999-0.tmp"), testing::bytes_of("half"));
  write(folder.file("x"), "new");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteWhole, APathEndsWhereItSays) {
  const Folder folder;
  const std::string path = folder.file("x") + std::string(1, '\0') + ".txt";
  EXPECT_EQ(error_of<ValueError>([&] { write(path, "x"); }),
            "save: the path " + folder.file("x") + "\\x00.txt has a zero byte at " +
                std::to_string(folder.file("x").size()) + "; no file has such a name");
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(WriteWhole, KeepsPermissionsAndFollowsLinks) {
  const Folder folder;
  write(folder.file("x"), "first");
  chmod(folder.file("x").c_str(), 0640);
  std::filesystem::create_symlink("x", folder / "link");
  write(folder.file("link"), "second");
  struct stat facts{};
  stat(folder.file("x").c_str(), &facts);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  EXPECT_EQ(testing::read_file(folder.file("x")), testing::bytes_of("second"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

TEST(WriteWhole, ErrorsNamePathAndReason) {
  const Folder folder;
  EXPECT_EQ(error_of<IoError>([&] { write(folder.file("none/x"), ""); }),
            "save: " + folder.file("none/x") + ": No such file or directory");
  EXPECT_EQ(error_of<IoError>([&] { write(folder.path(), ""); }), "save: " + folder.path() + ": Is a directory");
  EXPECT_EQ(error_of<IoError>([&] { write("/dev/full", "x"); }), "save: /dev/full: No space left on device");
}

TEST(WriteWhole, DevicesAreWrittenNotReplaced) {
  write("/dev/null", "x");
  struct stat facts{};
  stat("/dev/null", &facts);
  EXPECT_TRUE(S_ISCHR(facts.st_mode));
}

TEST(WriteWhole, AFailureLeavesTheOldFileAndNoTemporary) {
  const Folder folder;
  write(folder.file("x"), "old");
  const pid_t child = fork();
  if (child == 0) {  // a child, for the limit on the size of files stays
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string text = error_of<IoError>([&] { write(folder.file("x"), std::string(5000, 'n')); });
    std::_Exit(text == "save: " + folder.file("x") + ": File too large" ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(testing::read_file(folder.file("x")), testing::bytes_of("old"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteWhole, WhatAKilledProcessLeftIsRemovedAndNothingElse) {
  const Folder folder;
  const std::string here = std::to_string(getpid());
  for (const std::string& name :
       {std::string(".attn-99999999-0.tmp"), ".attn-" + here + "-17.tmp", std::string(".attn-1-0.tmp"),
        std::string(".attn-1-0.tmp.mine"), std::string(".attn-x-0.tmp"), "attn-" + here + "-0.tmp",
        std::string("model.safetensors")})
    write(folder.file(name), "x");
  std::filesystem::create_directory(folder / ".attn-2-0.tmp");
  std::filesystem::create_symlink("model.safetensors", folder / ".attn-3-0.tmp");
  io::remove_leftovers(folder.file(""));
  EXPECT_EQ(folder.entries(), 6u);
  for (const std::string& name :
       {std::string(".attn-99999999-0.tmp"), ".attn-" + here + "-17.tmp", std::string(".attn-1-0.tmp")})
    EXPECT_NE(access(folder.file(name).c_str(), F_OK), 0) << name;
  io::remove_leftovers(folder.file("missing"));
}

// Process numbers mean nothing across containers and machines; a lock does.
TEST(WriteWhole, WhatIsBeingWrittenIsNoLeftover) {
  const Folder folder;
  int until_child[2], until_parent[2];
  ASSERT_EQ(pipe(until_child) | pipe(until_parent), 0);
  const pid_t child = fork();
  if (child == 0) {  // as one whose number nobody here knows
    const int file = open(folder.file(".attn-99999999-0.tmp").c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    char sign = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (::write(until_parent[1], &sign, 1) != 1 || read(until_child[0], &sign, 1) != 1) std::_Exit(1);
    std::_Exit(0);
  }
  char sign = 0;
  ASSERT_EQ(read(until_parent[0], &sign, 1), 1);
  io::remove_leftovers(folder.file(""));
  EXPECT_EQ(folder.entries(), 1u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  io::remove_leftovers(folder.file(""));
  EXPECT_EQ(folder.entries(), 0u);
  for (const int file : {until_child[0], until_child[1], until_parent[0], until_parent[1]}) close(file);

  std::atomic<bool> done = false;
  const auto tidy = [&] {
    while (!done) io::remove_leftovers(folder.file(""));
  };
  std::thread one(tidy), two(tidy);
  const std::string large(1 << 20, 'l');
  for (int round = 0; round < 50; ++round)
    EXPECT_NO_THROW(write(folder.file(std::to_string(round)), round % 2 ? large : "x"));
  done = true;
  one.join();
  two.join();
  EXPECT_EQ(folder.entries(), 50u);
}

TEST(WriteWhole, ReadersSeeOneVersionOrTheOther) {
  const Folder folder;
  const std::string a(100000, 'a'), b(50000, 'b');
  write(folder.file("x"), a);
  std::thread writer([&] {
    for (int round = 0; round < 20; ++round) write(folder.file("x"), round % 2 ? a : b);
  });
  const Bytes whole_a = testing::bytes_of(a), whole_b = testing::bytes_of(b);
  for (int round = 0; round < 50; ++round) {
    const Bytes seen = testing::read_file(folder.file("x"));
    EXPECT_TRUE(seen == whole_a || seen == whole_b) << seen.size();
  }
  writer.join();
}

}  // namespace
}  // namespace attn
