// tests/cli/embed_command_test.cc: attn embed: the vectors of lines, the same bits whatever is done at the same time;
// it goes on after a kill or a signal.
#include <attn/npy.h>

#include "cli/command.h"
#include "cli/running.h"
#include "cli/small_encoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

namespace attn::testing {
namespace {

using nlohmann::json;

class EmbedCommand : public ::testing::Test {
 protected:
  EmbedCommand() {
    write_model("mpnet", model);
    folder.write("lines.txt", random_lines(700));
  }
  Said embed(const std::string& options, const std::string& variables = "") const {
    return attn_says("embed " + model + " " + options, variables);
  }
  std::string out(const std::string& name) const { return folder / name; }
  const Folder folder;
  const std::string model = folder / "model", lines = folder / "lines.txt";
};

TEST_F(EmbedCommand, ALineIsARow) {
  const Said said = embed(lines + " --out " + out("v.npy"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "700 lines, 16 numbers each, in " + out("v.npy") + "\n");
  const Tensor vectors = load_npy(out("v.npy"));
  EXPECT_EQ(vectors.sizes(), (Dims{700, 16}));
  EXPECT_TRUE(within(norm(vectors, 2, {1}), ones({700}), 1e-6));
  EXPECT_EQ(content_of(out("v.npy")), [&] {
    const auto bytes = npy_bytes(vectors);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }());
  EXPECT_EQ(folder.entries(), 3u);  // no FILE.part is left
  const TextEncoder encoder = TextEncoder::load(model);
  EXPECT_TRUE(same_bits(encoder.embed({"the cat sat on the mat"}), encoder.embed({"  The Cat sat on the MAT "})));
}

/// Batches, threads, targets, stdin, the order of the lines.
TEST_F(EmbedCommand, BitsDependOnNothingElse) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string expected = content_of(out("v.npy"));
  const auto same = [&](const std::string& options, const std::string& variables) {
    const Said said = embed(options + " --out " + out("w.npy"), variables);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(content_of(out("w.npy")) == expected) << options << " " << variables;
  };
  same(lines + " --batch 1", "");
  same(lines + " --batch 100000", "ATTN_NUM_THREADS=1");
  same(lines, "ATTN_NUM_THREADS=3");
  same("- <" + lines, "");
  for (const std::string target : {"amx", "avx512", "avx2", "neon", "scalar"})
    if (attn_says("info", "ATTN_TARGET=" + target).code == 0) same(lines, "ATTN_TARGET=" + target);
  ASSERT_EQ(shell("tac " + lines + " >" + out("back.txt")).code, 0);
  ASSERT_EQ(embed(out("back.txt") + " --out " + out("back.npy")).code, 0);
  const Tensor forward = load_npy(out("v.npy")), back = load_npy(out("back.npy"));
  for (std::int64_t i = 0; i < 700; ++i) EXPECT_TRUE(same_bits(forward.select(0, i), back.select(0, 699 - i)));
}

/// Killed anywhere: what is there is kept, and the end is the same file.
TEST_F(EmbedCommand, GoesOnAfterAKill) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string part = out("w.npy.part");
  // the first 300 lines arrive, and the command is killed while it waits for more
  const Said killed = shell("mkfifo " + out("p") + "; " + attn_command + " embed " + model + " - --out " +
                            out("w.npy") + " <" + out("p") + " & id=$!; exec 3>" + out("p") + "; head -n 300 " + lines +
                            " >&3; for i in $(seq 600); do grep -aq " + "'vectors 256 of' " + part +
                            " && break; sleep 0.1; done; kill -9 $id; wait $id; rm " + out("p"));
  ASSERT_TRUE(std::filesystem::exists(part)) << killed.err;
  EXPECT_FALSE(std::filesystem::exists(out("w.npy")));
  const Said wrong = embed("- --out " + out("w.npy") + " <" + out("lines.txt") + " --prompt x");
  EXPECT_EQ(wrong.err, "attn: TextEncoder: the model has no prompt \"x\"; it has none\n");
  folder.write("other.txt", random_lines(700, 4));
  EXPECT_EQ(embed(out("other.txt") + " --out " + out("w.npy")).err,
            "attn: " + part + " holds the vectors of 256 other lines; remove it to begin anew\n");
  EXPECT_EQ(embed(lines + " --dtype bf16 --out " + out("w.npy")).err,
            "attn: " + part + " holds vectors of another model, prompt or dtype; remove it to begin anew\n");
  std::ofstream(part, std::ios::binary | std::ios::app) << "half a row";
  const Said said = embed(lines + " --json --out " + out("w.npy"));
  EXPECT_EQ(said.code, 0) << said.err;
  const json facts = json::parse(said.out);
  EXPECT_EQ(facts.at("lines"), 700);
  EXPECT_EQ(facts.at("before"), 256);
  EXPECT_EQ(facts.at("whole"), true);
  EXPECT_TRUE(content_of(out("w.npy")) == content_of(out("v.npy")));
  EXPECT_FALSE(std::filesystem::exists(part));
}

/// Killed between the header of the whole file and its name: FILE.part has everything but the mark of its lines.
TEST_F(EmbedCommand, AWholeFileWithoutItsNameIsFinished) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string part = out("w.npy.part"), to = " --out " + out("w.npy"), whole = content_of(out("v.npy"));
  std::filesystem::copy_file(out("v.npy"), part);
  folder.write("fewer.txt", random_lines(699));
  EXPECT_EQ(embed(out("fewer.txt") + to).err,
            "attn: " + part + " holds the vectors of 700 other lines; remove it to begin anew\n");
  folder.write("other.txt", random_lines(700, 4));
  const std::string other = "attn: " + part +
                            " holds vectors of other lines, or of another model, prompt or dtype; remove it to begin "
                            "anew\n";
  EXPECT_EQ(embed(out("other.txt") + to).err, other);
  EXPECT_EQ(embed(lines + " --dtype bf16" + to).err, other);
  folder.write("bytes.txt", "\xFF\n" + random_lines(699));
  EXPECT_EQ(embed(out("bytes.txt") + to).err, other);
  EXPECT_EQ(embed(lines + to).out, "700 lines (700 were there), 16 numbers each, in " + out("w.npy") + "\n");
  EXPECT_TRUE(content_of(out("w.npy")) == whole);
  EXPECT_FALSE(std::filesystem::exists(part));
  // with more lines it goes on, as any other beginning does
  ASSERT_EQ(embed(out("fewer.txt") + " --out " + out("fewer.npy")).code, 0);
  std::filesystem::rename(out("fewer.npy"), part);
  EXPECT_EQ(embed(lines + to).out, "700 lines (699 were there), 16 numbers each, in " + out("w.npy") + "\n");
  EXPECT_TRUE(content_of(out("w.npy")) == whole);
  ASSERT_EQ(embed("/dev/null --out " + part).code, 0);
  EXPECT_EQ(embed(lines + to).code, 0);
  EXPECT_TRUE(content_of(out("w.npy")) == whole);
}

/// A pipe that stays open and brings no more lines.
TEST_F(EmbedCommand, ASignalEndsTheWaitingForLines) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string part = out("w.npy.part"), all = content_of(lines);
  const auto stopped = [&](const std::string& written, const std::string& state, int signal) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ASSERT_EQ(::write(ends[1], written.data(), written.size()), static_cast<ssize_t>(written.size()));
    Running run({"embed", model, "-", "--out", out("w.npy")}, {.input = ends[0], .output = out("said")});
    const auto begun = [&] {  // the file may be there from the run before
      return run.catches(signal) && content_of(part).find("vectors " + state + " of") != std::string::npos;
    };
    for (int i = 0; i < 60000 && !begun(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(run.stop(signal), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(content_of(out("said")),
              "stopped after " + state + " lines, kept in " + part + ": the same command goes on\n");
    ::close(ends[0]);
    ::close(ends[1]);
  };
  const std::string some = all.substr(0, all.find('\n', all.size() / 2) + 1);
  stopped("", "0", SIGINT);
  stopped(some, "256", SIGINT);
  stopped("", "256", SIGTERM);  // while it waits for the lines that are done
  stopped(some.substr(0, some.size() - 2), "256", SIGINT);
  EXPECT_EQ(embed("- --out " + out("w.npy") + " <" + lines).out,
            "700 lines (256 were there), 16 numbers each, in " + out("w.npy") + "\n");
  EXPECT_TRUE(content_of(out("w.npy")) == content_of(out("v.npy")));
}

TEST_F(EmbedCommand, MistakesAreOneLine) {
  const auto error = [&](const std::string& arguments, int code) {
    const Said said = attn_says(arguments);
    EXPECT_EQ(said.code, code) << said.err;
    EXPECT_EQ(said.out, "");
    return said.err;
  };
  EXPECT_EQ(error("embed", 2), "attn embed: --out is missing: the file for the vectors, as in: --out vectors.npy\n");
  EXPECT_EQ(error("embed --out v.npy", 2),
            "attn embed: a model is missing: the folder of an encoder, as transformers or sentence-transformers "
            "stores it, or a GGUF file\n");
  EXPECT_EQ(error("embed " + model + " --out v.npy", 2), "attn embed: a file of lines is missing; - is stdin\n");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out -", 2),
            "attn embed: --out is -; vectors need a file (./- has that name)\n");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out /dev/null", 1),
            "attn: /dev/null is there and is no file; vectors need a file\n");
  EXPECT_EQ(error("embed " + model + " " + (folder / "none.txt") + " --out " + out("v.npy"), 1),
            "attn: " + (folder / "none.txt") + ": No such file or directory\n");
  EXPECT_EQ(error("embed " + model + " " + folder.path() + " --out " + out("v.npy"), 1),
            "attn: " + folder.path() + ": Is a directory\n");
  folder.write("v.npy.part", "something else");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out " + out("v.npy"), 1),
            "attn: " + out("v.npy.part") +
                " is not the beginning of a file of vectors of 16 numbers; remove it to begin anew\n");
  EXPECT_EQ(content_of(out("v.npy.part")), "something else");
  std::filesystem::remove(out("v.npy.part"));
  folder.write("bad.txt", random_lines(300) + "\xFF\n");
  EXPECT_EQ(error("embed " + model + " " + out("bad.txt") + " --out " + out("v.npy"), 1)
                .find("attn: " + out("bad.txt") + ": line 301: "),
            0u);
  write_model("bert", folder / "scores");
  EXPECT_EQ(error("embed " + (folder / "scores") + " " + lines + " --out " + out("x.npy"), 1),
            "attn: embed: " + (folder / "scores") + " gives scores of pairs, no vectors; attn rank uses it\n");
  std::filesystem::remove(model + "/tokenizer.json");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out " + out("x.npy"), 1),
            "attn: TextEncoder: the model's folder has no tokenizer.json; it is needed for texts\n");
}

TEST_F(EmbedCommand, NoLinesAreNoRows) {
  EXPECT_EQ(embed("/dev/null --out " + out("v.npy")).code, 0);
  EXPECT_EQ(load_npy(out("v.npy")).sizes(), (Dims{0, 16}));
}

TEST_F(EmbedCommand, PromptsStandBeforeTheTexts) {
  write_text(model + "/config_sentence_transformers.json",
             R"({"prompts": {"query": "the red ", "passage": "the blue "}, "default_prompt_name": null})");
  folder.write("two.txt", "cat\nsun sea\n");
  ASSERT_EQ(embed(out("two.txt") + " --prompt query --out " + out("v.npy")).code, 0);
  const TextEncoder encoder = TextEncoder::load(model);
  EXPECT_TRUE(same_bits(load_npy(out("v.npy")), encoder.embed({"the red cat", "the red sun sea"})));
  EXPECT_EQ(embed(out("two.txt") + " --prompt document --out " + out("w.npy")).err,
            "attn: TextEncoder: the model has no prompt \"document\"; it has passage, query\n");
  const json ranked = json::parse(attn_says("rank " + model + " cat " + out("two.txt") + " --json").out);
  const Tensor query = encoder.embed({"the red cat"}), passages = encoder.embed({"the blue cat", "the blue sun sea"});
  const Tensor scores = linear(passages, query).select(1, 0);
  for (const json& line : ranked.at("lines"))
    EXPECT_NEAR(line.at("score").get<double>(), scores.select(0, line.at("line").get<std::int64_t>() - 1).item(), 1e-6);
}

TEST_F(EmbedCommand, SpeaksChinese) {
  EXPECT_EQ(embed(lines + " --out " + out("v.npy") + " --prompt x", "LANG=zh_CN.UTF-8").err,
            "attn: TextEncoder：模型没有提示“x”；它没有任何提示\n");
}

}  // namespace
}  // namespace attn::testing
