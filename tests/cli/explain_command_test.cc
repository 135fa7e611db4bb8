// tests/cli/explain_command_test.cc: attn explain from the shell: numbers, languages, files, colours, pipes.
#include "cli/command.h"

#include <attn/npy.h>
#include <attn/ops.h>
#include <attn/safetensors.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace attn::testing {
namespace {

const std::string kLife = "explain \"Life is short, eat dessert first\"";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ExplainCommand, ShowsTheTutorial) {
  const Said said = attn_says(kLife);
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.err, "");
  for (const char* part :
       {"0.3374", "3.4707", "0.6870", "0.5313   1.3607   0.7891   1.3110", "Embedding(50000, 3), seed 123"})
    EXPECT_TRUE(contains(said.out, part)) << part;
  EXPECT_FALSE(contains(said.out, "\x1b"));
}

TEST(ExplainCommand, ANegativeQueryCountsFromTheEnd) {
  const Said last = attn_says(kLife + " --query 5 --json"), counted = attn_says(kLife + " --query -1 --json");
  EXPECT_EQ(counted.code, 0) << counted.err;
  EXPECT_EQ(counted.out, last.out);
  EXPECT_EQ(attn_says(kLife + " --query=-6").out, attn_says(kLife + " --query 0").out);
  const Said none = attn_says(kLife + " --query -7");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(contains(none.err, "query -7 is not there; the tokens are 0 to 5, or -6 to -1 from the end")) << none.err;
}

TEST(ExplainCommand, ShowsBlocksOfKeys) {
  const std::string text = "explain \"the cat sat on the mat\" --only mask ";
  const Said said = attn_says(text + "--blocks \"0; 0 1; 0 2\" --block-size 2 --causal");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(contains(said.out, "causal & blocks(i64 [1, 1, 3, 2], 2, 2)")) << said.out;
  for (const auto& [options, error] :
       {std::pair{"--block-size 2", "--block-size needs --blocks"},
        {"--blocks \"0; x\"",
         "--blocks: \"0; x\" is not understood; whole numbers are needed, with ; between blocks of rows"},
        {"--blocks 0 --block-size 0", "--block-size: \"0\" is not understood; one whole number is needed"},
        {"--blocks \"0; 1\" --block-size 2", "6 rows in blocks of 2 need"},
        {"--blocks \"0; 1; 3\" --block-size 2", "holds the index 3; 6 keys are 3 blocks of 2"},
        {"--blocks 0 --html x.html", "--blocks and --html do not go together"}}) {
    const Said wrong = attn_says(text + options);
    EXPECT_NE(wrong.code, 0) << options;
    EXPECT_TRUE(contains(wrong.err, error)) << options << ": " << wrong.err;
  }
}

TEST(ExplainCommand, ShowsRelativeProductsNormalizersAndFunctionsOfTheWeight) {
  const std::string text = "explain \"the cat sat on the mat\" ";
  const Said said = attn_says(text +
                              "--relative 'distance(2, 2) scale=1 + distance(1, 1) of_keys' --normalizer "
                              "sparsemax --weight-mod 's * 0.5' --temperature 0.1 --json");
  EXPECT_EQ(said.code, 0) << said.err;
  for (const char* step :
       {"relative_rows", "relative_products_2", "relative_added_2", "threshold", "support", "weights_modified"})
    EXPECT_TRUE(contains(said.out, "{\"name\": \"" + std::string(step) + "\"")) << step;
  for (const auto& [options, error] :
       {std::pair{"--relative 'distance(2)'",
                  "--relative: \"distance(2)\": column 11, at \")\": two numbers were expected"},
        {"--relative 'distance(2, 2)' --latent 4", "--relative and --latent do not go together"},
        {"--normalizer sparsmax", "--normalizer has no \"sparsmax\"; did you mean sparsemax?"},
        {"--normalizer sparsemax --html x.html", "--html and --normalizer do not go together"},
        {"--normalizer sparsemax --model x", "--normalizer and --model do not go together"},
        {"--weight-mod 's +'", "--weight-mod "},
        {"--weight-mod 's * 2' --gradients",
         "explain: a function of the weight has no option gradients; leave it out"}}) {
    const Said wrong = attn_says(text + options);
    EXPECT_NE(wrong.code, 0) << options;
    EXPECT_TRUE(contains(wrong.err, error)) << options << ": " << wrong.err;
  }
}

TEST(ExplainCommand, ReadsItsTextFromStdin) {
  const std::string direct = attn_says("explain 'Life is short' --tokens characters --json").out;
  for (const char* end : {"", "\\n", "\\r\\n"})
    EXPECT_EQ(shell(std::string("printf 'Life is short") + end + "' | " + attn_command +
                    " explain - --tokens characters --json")
                  .out,
              direct)
        << end;
  EXPECT_EQ(shell("echo 'eat first' | " + attn_command + " explain Life --to -").out,
            attn_says("explain Life --to 'eat first'").out);
  EXPECT_EQ(shell("echo 'eat first' | " + attn_command + " explain Life -").out,
            attn_says("explain Life 'eat first'").out);
  EXPECT_NE(attn_says("explain -- - </dev/null").out.find("  -"), std::string::npos);  // a word
}

TEST(ExplainCommand, ColourOnlyWhereItIsWanted) {
  EXPECT_FALSE(contains(attn_says(kLife, "TERM=xterm-256color COLORTERM=truecolor").out, "\x1b"));
  EXPECT_TRUE(contains(attn_says(kLife + " --color always").out, "\x1b[38;5"));
  // A terminal made by script(1): colours, unless NO_COLOR is set.
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "not installed: script(1)";
  const std::string in_terminal = "script -qec \"" + attn_command + " explain a\" /dev/null";
  EXPECT_TRUE(contains(shell("TERM=xterm-256color " + in_terminal).out, "\x1b["));
  EXPECT_FALSE(contains(shell("TERM=xterm-256color NO_COLOR=1 " + in_terminal).out, "\x1b["));
  EXPECT_FALSE(contains(shell("TERM=dumb " + in_terminal).out, "\x1b["));
}

TEST(ExplainCommand, SpeaksTheLanguageOfTheEnvironment) {
  EXPECT_TRUE(contains(attn_says("explain 我叫张三", "LANG=zh_CN.UTF-8").out, "词元"));
  EXPECT_TRUE(contains(attn_says("explain 我叫张三 --lang zh").out, "注意力权重"));
  for (const char* name : {"cn", "zh-CN", "zh_CN.UTF-8", "ZH", "中文"})
    EXPECT_TRUE(contains(attn_says(std::string("explain 我叫张三 --lang ") + name).out, "注意力权重")) << name;
  EXPECT_FALSE(contains(attn_says("explain 我叫张三 --lang en", "LANG=zh_CN.UTF-8").out, "词元"));
  EXPECT_FALSE(contains(attn_says("explain 我叫张三", "LC_ALL=C LANG=zh_CN.UTF-8").out, "词元"));
}

TEST(ExplainCommand, SaysWhichCommasAreLeftOut) {
  EXPECT_TRUE(contains(attn_says("explain \"Life is short, eat\"").out, "by characters; commas left out: ,\n"));
  EXPECT_TRUE(contains(attn_says("explain 我，你 --lang zh").out, "略去标点：，"));
  EXPECT_TRUE(contains(attn_says("explain a,b --json").out, "commas left out: ,\""));
  EXPECT_FALSE(contains(attn_says("explain \"a b.\"").out, "left out"));
  // ICU's words keep the comma of a number.
  EXPECT_FALSE(contains(attn_says("explain 我有1,000个 --tokens words").out, "left out"));
}

TEST(ExplainCommand, WordsOfChineseAreFoundByDictionary) {
  const Said said = attn_says("explain 我们今天去公园 --tokens words --json");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(nlohmann::json::parse(said.out)["steps"][0]["values"], nlohmann::json({"我们", "今天", "去", "公园"}));
  EXPECT_EQ(nlohmann::json::parse(attn_says("explain ab --tokens characters --json").out)["steps"][0]["values"],
            nlohmann::json({"a", "b"}));
}

TEST(ExplainCommand, ShowsTheWayBack) {
  const Said said = attn_says(kLife + " --gradients");
  EXPECT_EQ(said.code, 0);
  for (const char* part : {"dO ", "dV ", "dP ", "dS ", "dQ ", "dK ", "weights (dP - Σ weights dP)", "dS k / √2",
                           "L = ½ Σ context² = 3.1664", "0.4733   1.4364"})
    EXPECT_TRUE(contains(said.out, part)) << part;
  EXPECT_FALSE(contains(attn_says(kLife).out, "dQ"));
  EXPECT_TRUE(contains(attn_says("explain 我叫张三 --gradients --causal --lang zh").out, "softmax 的梯度"));
  const auto steps = nlohmann::json::parse(attn_says(kLife + " --gradients --causal --json").out)["steps"];
  EXPECT_EQ(steps.back()["name"], "d_k");
  EXPECT_TRUE(steps[steps.size() - 3]["values"][0][1].is_null()) << "a hidden pair has no dS";
}

TEST(ExplainCommand, EndsWithTheOutputProjection) {
  const Said said = attn_says(kLife + " --heads 2 --output-projection");
  EXPECT_EQ(said.code, 0) << said.err;
  for (const char* part :
       {"joined W_O", "output projection: W_O mixes what the heads found", "rand(8, 3), seed 123",
        "-0.1674  -0.0904  -0.0873", "0.9455  0.8057  0.6775"})  // PyTorch 2.13, as in tutorials_test
    EXPECT_TRUE(contains(said.out, part)) << part;
  EXPECT_LT(said.out.find("    W_O  the matrices that a model learns"), said.out.find("joined W_O"));
}

TEST(ExplainCommand, ALearnedQueryAsks) {
  const Said said = attn_says(kLife + " --learned-query");
  EXPECT_EQ(said.code, 0) << said.err;
  for (const char* part : {"query  0.2350  0.6653  0.3528", "u W_q", "0.2786  0.7822  0.4169  0.7107"})  // PyTorch 2.13
    EXPECT_TRUE(contains(said.out, part)) << part;
  EXPECT_TRUE(contains(attn_says("explain a --to b --learned-query").err, "learned_query and to do not go together"));
}

TEST(ExplainCommand, ShowsOnlyTheStepsThatAreNamed) {
  const Said said = attn_says(kLife + " --only weights,context --query 1");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(said.out.starts_with(" 9  weights  [6, 6]  softmax(scaled)")) << said.out;
  EXPECT_TRUE(contains(said.out, "10  context"));
  for (const char* part : {"tokens", "scores", "W_q", "query row"}) EXPECT_FALSE(contains(said.out, part)) << part;
  const auto steps = nlohmann::json::parse(attn_says(kLife + " --only 'context, weights' --json").out)["steps"];
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0]["name"], "weights");
  EXPECT_EQ(steps[1]["name"], "context");
  const std::string svg = attn_says(kLife + " --only context --svg -").out;
  EXPECT_TRUE(contains(svg, ">10  context<"));
  EXPECT_FALSE(contains(svg, ">9  weights<"));
  const Said wrong = attn_says(kLife + " --only weigths");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_EQ(wrong.err,
            "attn: explain: there is no step \"weigths\"; there are tokens, ids, x, q, k, v, scores, "
            "scaled, weights, context\n");
}

TEST(ExplainCommand, ATableOfSixRows) {
  const Said said = attn_says(kLife + " --vocabulary 6 --dim 16 --only x");
  EXPECT_TRUE(contains(said.out, "Embedding(6, 16), seed 123")) << said.out;
  EXPECT_TRUE(contains(said.out, "0.5146   0.9938  -0.2587  -1.0826")) << said.out;  // tutorial 004's second word but 3
}

TEST(ExplainCommand, ShowsThatPaddingDoesNotMatter) {
  const Said said = attn_says("explain --batch 我叫张三 他是谁 李四");
  EXPECT_EQ(said.code, 0);
  for (const char* part : {"PAD", "×", "李四      ✓ the same bits alone", "0.0000  0.0000  0.0000  0.0000\n"})
    EXPECT_TRUE(contains(said.out, part)) << part;
}

TEST(ExplainCommand, TakesOwnMatrices) {
  const Folder folder;
  const Tensor q = ones({3, 2}), k = zeros({3, 2}), v = tensor<float>({1, 0, 0, 1, 0, 0}, {3, 2});
  save_safetensors(folder.file("w.safetensors"), {{"w_query", q}, {"w_key", k}, {"w_value", v}});
  std::filesystem::create_directory(folder.file("npy"));
  save_npy(folder.file("npy/w_query.npy"), q);
  save_npy(folder.file("npy/w_key.npy"), k);
  save_npy(folder.file("npy/w_value.npy"), v);
  const Said from_file = attn_says("explain 'a b' --json --weights " + folder.file("w.safetensors"));
  ASSERT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(from_file.out, attn_says("explain 'a b' --json --weights " + folder.file("npy")).out);
  EXPECT_TRUE(contains(from_file.out, "[0.5, 0.5]"));
  save_npy(folder.file("npy/w_output.npy"), ones({2, 3}));
  save_npy(folder.file("npy/query_vector.npy"), zeros({3}));
  const Said more = attn_says("explain 'a b' --weights " + folder.file("npy"));
  EXPECT_TRUE(contains(more.out, "your own w_output") && contains(more.out, "your own query_vector")) << more.out;

  save_safetensors(folder.file("bad.safetensors"), {{"w_query", q}, {"w_key", ones({4, 2})}, {"w_value", v}});
  const Said bad = attn_says("explain 'a b' --weights " + folder.file("bad.safetensors"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(contains(bad.err, "w_key has shape [4, 2]; it must be [3, 2]")) << bad.err;
  const std::string whole = content_of(folder.file("w.safetensors"));
  const Said cut =
      attn_says("explain 'a b' --weights " + folder.write("cut.safetensors", whole.substr(0, whole.size() - 3)));
  EXPECT_EQ(cut.code, 1);
  EXPECT_EQ(std::count(cut.err.begin(), cut.err.end(), '\n'), 1) << cut.err;
  EXPECT_EQ(attn_says("explain 'a b' --weights " + folder.write("empty", "")).code, 1);
  EXPECT_TRUE(contains(attn_says("explain 'a b' --weights " + folder.file("npy/w_key.npy")).err,
                       "w_key.npy is a file of NumPy's; a folder of w_query.npy, w_key.npy and w_value.npy is needed, "
                       "or a safetensors file\n"));
  save_safetensors(folder.file("less.safetensors"), {{"w_query", q}});
  EXPECT_TRUE(contains(attn_says("explain 'a b' --weights " + folder.file("less.safetensors")).err,
                       "has no w_key; it has w_query"));
}

TEST(ExplainCommand, DrawsIntoAFile) {
  const Folder folder;
  const Said said = attn_says(kLife + " --svg " + folder.file("life.svg"));
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.out, "");
  EXPECT_TRUE(content_of(folder.file("life.svg")).starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(attn_says(kLife + " --svg -").out == content_of(folder.file("life.svg")));
  const Said nowhere = attn_says(kLife + " --svg /nowhere/life.svg");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_TRUE(contains(nowhere.err, "explain: /nowhere/life.svg: No such file or directory"));
}

/// Returns what the page in `html` begins with.
std::string start_of(const std::string& html) {
  const std::string mark = "<script type=\"application/json\" id=\"attn-start\">";
  const std::size_t found = html.find(mark), begin = found + mark.size();
  if (found == std::string::npos) return "no element";
  return html.substr(begin, html.find("</script>", begin) - begin);
}

TEST(ExplainCommand, WritesThePage) {
  const Folder folder;
  const Said said = attn_says(kLife + " --heads 2 --causal --html " + folder.file("life.html"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "");
  const std::string page = content_of(folder.file("life.html"));
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  const auto start = nlohmann::json::parse(start_of(page));
  EXPECT_EQ(start["text"], "Life is short, eat dessert first");
  EXPECT_TRUE(start["to"].is_null());
  EXPECT_EQ(start["options"], nlohmann::json::parse(attn_says(kLife + " --heads 2 --causal --json").out)["options"]);
  EXPECT_TRUE(attn_says(kLife + " --heads 2 --causal --html -").out == page);
}

TEST(ExplainCommand, ThePageHoldsTextsThatLookLikeItsEnd) {
  const std::string text = "</script><b>\\\"我叫张三";
  const std::string page = attn_says("explain '" + text + "' --to '<!--' --html -").out;
  const std::string start = start_of(page);
  EXPECT_EQ(start.find('<'), std::string::npos) << start;
  EXPECT_EQ(nlohmann::json::parse(start)["text"], text);
  EXPECT_EQ(nlohmann::json::parse(start)["to"], "<!--");
  const auto batch = nlohmann::json::parse(start_of(attn_says("explain --batch '我叫张三' '他是谁' --html -").out));
  EXPECT_EQ(batch["text"], (nlohmann::json{"我叫张三", "他是谁"}));
}

TEST(ExplainCommand, ThePageHasTheWordsOfTheDictionaries) {
  const std::string call = "explain '我叫张三' 'a b' --tokens words";
  const auto start = nlohmann::json::parse(start_of(attn_says(call + " --html -").out));
  if (!start.contains("cut")) GTEST_SKIP() << "not installed: ICU (./setup)";
  EXPECT_EQ(start["cut"], (nlohmann::json{{"我叫张三", {"我", "叫", "张三"}}}));
}

TEST(ExplainCommand, APageThatCannotBeWrittenIsOneLine) {
  const Said nowhere = attn_says(kLife + " --html /nowhere/life.html");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.err, "attn: explain: /nowhere/life.html: No such file or directory\n");
  EXPECT_EQ(attn_says(kLife + " --html - --json").code, 2);
  EXPECT_TRUE(contains(attn_says(kLife + " --html - --svg -").err, "--svg - and --html - both go to stdout"));
  EXPECT_TRUE(contains(attn_says(kLife + " --html - --weights w.safetensors").err, "do not go together"));
  EXPECT_TRUE(contains(attn_says(kLife + " --html - --model folder").err, "do not go together"));
}

TEST(ExplainCommand, AReaderThatLeavesEndsItQuietly) {
  const Said left =
      shell("{ " + attn_command +
            " explain --json --heads 8 --dim 64 --dk 64 'a b c d e f g h'; echo code $? >&2; } | head -c 1");
  EXPECT_EQ(left.out, "{");
  EXPECT_EQ(left.err, "code 0\n");
  const Said full = attn_says(kLife + " > /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(contains(full.err, "stdout: cannot write")) << full.err;
}

TEST(ExplainCommand, FitsTheColumnsItIsGiven) {
  const Said said = attn_says(kLife, "COLUMNS=60");
  EXPECT_EQ(said.code, 0);
  EXPECT_TRUE(contains(said.out, " .69")) << said.out;
}

}  // namespace
}  // namespace attn::testing
