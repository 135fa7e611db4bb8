// tests/cli/chinese_test.cc: under a Chinese locale the command's help and errors are Chinese.
#include "cli/command.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

namespace attn::testing {
namespace {

const std::string kChinese = "LC_ALL=zh_CN.UTF-8";

/// Returns whether the text has a Chinese character (U+4E00 to U+9FFF: bytes E4 B8 80 to E9 BF BF).
bool is_chinese(const std::string& text) {
  for (const char c : text)
    if (c >= '\xE4' && c <= '\xE9') return true;
  return false;
}

TEST(ChineseCommand, HelpIsChinese) {
  for (const std::string verb : {"", "explain ", "run ", "info ", "verify ", "bench ", "train ", "generate ", "chat ",
                                 "perplexity ", "convert ", "completion "}) {
    const Said said = attn_says(verb + "--help", kChinese);
    EXPECT_EQ(said.code, 0);
    std::istringstream lines(said.out);
    for (std::string line; std::getline(lines, line);) {
      const bool example = line.starts_with("  attn ") || line.starts_with("  echo ") || line.starts_with("  source ");
      if (!line.empty() && !example) { EXPECT_TRUE(is_chinese(line)) << verb << line; }
    }
  }
  EXPECT_FALSE(is_chinese(attn_says("--help", "LC_ALL=C LANG=zh_CN.UTF-8").out));
  EXPECT_TRUE(attn_says("explain --help", kChinese)
                  .out.starts_with("逐步显示一段文本的注意力，每一步都有数值\n"
                                   "用法：attn explain [选项] [TEXT...]\n"));
  EXPECT_TRUE(is_chinese(attn_says("", kChinese).err));
  EXPECT_TRUE(attn_says("--version", kChinese).out.starts_with("attn "));
  EXPECT_EQ(attn_says("explain --lang en --help", kChinese).out, attn_says("explain --help").out);
  EXPECT_EQ(attn_says("explain --lang=zh --help").out, attn_says("explain --help", kChinese).out);
}

TEST(ChineseCommand, AnErrorSaysTheSame) {
  struct Error {
    const char *arguments, *says;
  };
  for (const auto& [arguments, says] : {
           Error{"explian hi", "attn: 没有命令“explian”；是不是 explain？\n"},
           Error{"frobnicate",
                 "attn: 没有命令“frobnicate”；可用的有 explain, run, info, verify, bench, train, generate, "
                 "chat, embed, rank, perplexity, convert, completion\n"},
           Error{"info a what", "attn info: “what”是多余的参数（见 attn info --help）\n"},
           Error{"explain hi --cuasal", "attn explain: 没有选项 --cuasal；是不是 --causal？\n"},
           Error{"explain hi --frobnicate",
                 "attn explain: 没有选项 --frobnicate（attn explain --help 会列出所有选项）\n"},
           Error{"explain", "attn explain: 缺少文本，例如：attn explain \"Life is short, eat dessert first\"\n"},
           Error{"explain ''", "attn: explain：文本里没有词元；至少要有一个词\n"},
           Error{"explain hi --score adative",
                 "attn explain: --score 没有“adative”；是不是 additive？可用的有 scaled_dot, dot, general, additive\n"},
           Error{"explain hi --lang fr", "attn explain: --lang 没有“fr”；可用的有 en, zh\n"},
           Error{"explain hi --heads two", "attn explain: --heads：必须是整数，而不是“two”\n"},
           Error{"explain hi --heads 0", "attn: explain：heads 是 0；必须在 1 到 64 之间\n"},
           Error{"explain hi --heads", "attn explain: --heads 需要一个值\n"},
           Error{"explain hi --heads 2 --heads 3", "attn explain: --heads 给了不止一次\n"},
           Error{"explain hi --softcap -1", "attn: explain：softcap 是 -1；必须大于 0 且有限，或为 0（表示不用）\n"},
           Error{"explain hi --dropout 2", "attn: explain：dropout_p 是 2；必须在 0 到 1 之间\n"},
           Error{"explain hi --query 1", "attn: explain：没有第 1 个查询；词元从 0 到 0，或从末尾数 -1 到 -1\n"},
           Error{"explain hi --only weigth",
                 "attn: explain：没有步骤“weigth”；可用的有 tokens, ids, x, q, k, v, scores, "
                 "scaled, weights, context\n"},
           Error{"explain a --to b --learned-query",
                 "attn: explain：learned_query 与 to 不能同时用：查询要么是一个可学习的向量，要么来自文本\n"},
           Error{"explain hi --vocabulary 0", "attn: explain：vocabulary 是 0；必须在 1 到 1073741824 之间\n"},
           Error{"explain 'a b' --vocabulary 1", "attn: explain：文本需要 2 个编号；词嵌入只有 1 行\n"},
           Error{"explain 'a b c' --to 'd e' --mask causal",
                 "attn: explain：causal 没有说明 3 行查询与 2 个键如何对齐；要写明 top_left 或 bottom_right，例如 "
                 "causal(bottom_right)\n"},
           Error{"explain hi --mask 'causal &'",
                 "attn explain: --mask “causal &”：第 9 列，末尾：这里应是掩码：causal, "
                 "window(left, right), prefix(n), all, none\n"},
           Error{"explain hi --mask 'causal)'",
                 "attn explain: --mask “causal)”：第 7 列，“)”处：这里应是运算符 & 或 |\n"},
           Error{"explain hi --score-mod 's +'",
                 "attn explain: --score-mod “s +”：第 4 列，末尾：这里应是 s, b, h, i, j、一个数，或 exp, tanh, abs, "
                 "min, "
                 "max, where 之一\n"},
           Error{
               "explain hi --score-mod 'foo'",
               "attn explain: --score-mod “foo”：第 1 列，“foo”处：这里应是 s, b, h, i, j、一个数，或 exp, tanh, abs, "
               "min, max, where 之一\n"},
           Error{"explain hi --return-weights 'top_k(9)'",
                 "attn: attention：要返回的 top_k 是 9；必须在 1 到键的个数 1 之间\n"},
           Error{"explain hi --positions rotary --dk 3",
                 "attn: explain：旋转位置编码成对地旋转数；dk 是 3，必须是偶数\n"},
           Error{"explain hi --layer 1", "attn explain: --layer 要和 --model 一起用\n"},
           Error{"explain - --to - </dev/null",
                 "attn explain: - 给了两次；标准输入只能读一次（文本就是 - 时，前面写 --）\n"},
           Error{"explain hi --svg - --json", "attn explain: --svg - 与 --json 不能同时用：两者都写到标准输出\n"},
           Error{"explain hi --svg - --html -", "attn explain: --svg - 与 --html - 都写到标准输出\n"},
           Error{"explain hi --html - --json", "attn explain: --html - 与 --json 不能同时用：两者都写到标准输出\n"},
           Error{"explain hi --html - --weights w",
                 "attn explain: --html 与 --weights 不能同时用：网页自己生成矩阵；可以把文件拖到网页上\n"},
           Error{"explain hi --html - --model w",
                 "attn explain: --html 与 --model 不能同时用：网页里没有这个文件夹；可以把其中的文件拖到网页上\n"},
           Error{"explain hi --svg ''", "attn explain: --svg：必须是文件名，或用 - 表示标准输出，不能为空\n"},
           Error{"explain hi --svg /nowhere/a.svg", "attn: explain: /nowhere/a.svg：没有这个文件或文件夹\n"},
           Error{"explain hi --weights /nowhere", "attn: load_safetensors: /nowhere：没有这个文件或文件夹\n"},
           Error{"explain \"$(printf 'a\\377b')\"", "attn: 文本偏移 1 处的字节 0xFF 不是 UTF-8\n"},
           Error{"explain hi --sink 1e39", "attn: explain：sink：f32 存不下 1e+39 这个值\n"},
           Error{"explain \"$(yes w | head -3000)\"", "attn: explain：文本有 3000 个词元；最多能显示 2048 个\n"},
       })
    EXPECT_EQ(attn_says(arguments, kChinese).err, says) << arguments;
  EXPECT_FALSE(is_chinese(attn_says("explain hi --heads 0", "LC_ALL=en_US.UTF-8").err));
}

TEST(ChineseCommand, AnErrorOfModelsAndFilesSaysTheSame) {
  const Folder here;
  const std::string folder = here / "model";
  for (const auto& [name, content] : {std::pair{"text", "the cat sat on the mat and the dog sat on the cat"},
                                      {"empty", ""},
                                      {"call", R"({"q": [[1, 2]], "k": [[1, 2, 3]], "v": [[1, 2]]})"},
                                      {"nan", R"({"q": [[1, NaN]]})"},
                                      {"mixed", R"({"q": [[1, 2], [3]]})"},
                                      {"lines", "a\n\nb\n"}})
    here.write(std::string("model_") + name, content);
  const std::string train = "train " + folder + "_text --out " + folder + " --size nano --context 8 --steps 2 ";
  ASSERT_EQ(attn_says(train + "--tokens characters").code, 0);
  const auto says = [&](const std::string& arguments, std::string wanted) {
    for (std::size_t at; (at = wanted.find('@')) != std::string::npos;) wanted.replace(at, 1, folder);
    EXPECT_EQ(attn_says(arguments, kChinese).err, wanted) << arguments;
  };
  says("run", "attn run: 缺少文件：需要含 q、k、v 的 JSON 或 safetensors 文件\n");
  says("run " + folder + "_empty", "attn: run：@_empty 是空的\n");
  says("run " + folder + "_text", "attn: run：@_text 既不是 JSON，也不是 safetensors\n");
  says("run " + folder + "_nan",
       "attn: run：@_nan 第 1 行第 12 列不是 JSON；请写成 \"nan\"、\"inf\"、\"-inf\"，带引号\n");
  says("run " + folder + "_mixed", "attn: run：q 中各列表的长度不同；都必须填满 [2, 2]\n");
  says("run " + folder + "_call", "attn: attention：k 的形状是 [1, 3]；要与 q [1, 2] 相配，最后一维必须是 2\n");
  says("run " + folder + "_call --dtype f99",
       "attn run: --dtype：没有类型“f99”；可用的有 f32 (float32), f64 (float64), bf16 (bfloat16), f16 (float16), i64 "
       "(int64), i32 (int32), bool\n");
  says("train", "attn train: 缺少文本，例如：attn train /usr/share/common-licenses/GPL-3\n");
  says("train " + folder + "_empty --out " + folder + "_new", "attn: @_empty：没有文本\n");
  says("train /nowhere", "attn: /nowhere：无法读取：没有这个文件或文件夹\n");
  says(train, "attn: @ 中已有训练（第 2 步，共 2 步）：用 --resume 继续，或换一个 --out 重新开始\n");
  says(train + "--resume --batch 3", "attn train: --batch 是 3，@ 中的训练是 12；去掉它，或换一个 --out 重新开始\n");
  says("train " + folder + "_text --out " + folder + "_new --context 4000",
       "attn: Trainer：文本只有 49 个词元；窗口为 4000 时至少需要 4445 个：换更长的文本，或更短的上下文\n");
  says("generate",
       "attn generate: 缺少模型：GGUF 文件，或 attn train 或 Hugging Face "
       "的文件夹（GPT-2、Llama、Mistral、Qwen、Gemma、Phi、"
       "SmolLM）\n");
  says("generate " + folder + " --prompt '~'", "attn: encode：“~”不在分词器的 12 个字符之中\n");
  says("generate " + folder + " --prompts " + folder + "_lines", "attn: @_lines：第 2 行是空的；每行是一个提示\n");
  says("generate " + folder + " --prompt a --temperature -1",
       "attn: generate：temperature 是 -1；必须不小于 0 且有限\n");
  says("generate " + folder + " --prompt a --tokens -1", "attn: generate：tokens 是 -1；必须不小于 0\n");
  says("convert " + folder, "attn convert: 需要模型和新的文件夹或 GGUF 文件，例如：attn convert model.gguf model\n");
  says("convert " + folder + "_text " + folder + "_new",
       "attn: GgufFile：@_text：文件不以 GGUF 开头；需要 GGUF 文件或模型的文件夹（第 0 字节）\n");
  says("generate " + folder + "_text", "attn: Tokenizer::load：@_text：不是 JSON（第 2 字节）\n");
  says("bench --only frobnicate", "attn bench: 没有哪一行含有“frobnicate”（attn bench --list 会列出所有行）\n");
  says("verify --list --quick", "attn verify: --list 只能单独用：它以文本列出整张表\n");
}

// A range, "{} to {}", is the reason that most texts look like.
TEST(ChineseCommand, AReasonIsNotTakenForARange) {
  EXPECT_EQ(attn_says("explain hi --mask 'window(3)'", kChinese).err,
            "attn explain: --mask “window(3)”：第 9 列，“)”处：这里应是逗号和右边的键数\n");
}

// What a user wrote may look like a part of an error that has a translation.
TEST(ChineseCommand, WordsOfTheUserStayAsTheyAre) {
  for (const auto& [arguments, says] : {
           std::pair{"explain hi --weights 'from a to b'",
                     "attn: load_safetensors: from a to b：没有这个文件或文件夹\n"},
           std::pair{"explain hi --mask 'from 1 to 2'",
                     "attn explain: --mask “from 1 to 2”：第 1 列，“from 1 to 2”处：这里应是掩码：causal, window(left, "
                     "right), prefix(n), all, none\n"},
           std::pair{"explain hi --only 'a to b'",
                     "attn: explain：没有步骤“a”；可用的有 tokens, ids, x, q, k, v, scores, scaled, weights, "
                     "context\n"},
           std::pair{"'x to y'",
                     "attn: 没有命令“x to y”；可用的有 explain, run, info, verify, bench, train, generate, "
                     "chat, embed, rank, perplexity, convert, completion\n"},
           std::pair{"info 'not enough memory'", "attn: GgufFile: not enough memory：没有这个文件或文件夹\n"},
           std::pair{"run 'a is b; it must be c'", "attn: a is b; it must be c：无法读取：没有这个文件或文件夹\n"},
           std::pair{"bench --only 'no text'",
                     "attn bench: 没有哪一行含有“no text”（attn bench --list 会列出所有行）\n"},
           std::pair{"verify all 'not enough memory'",
                     "attn verify: “not enough memory”是多余的参数（见 attn verify --help）\n"},
           std::pair{"explain hi --heads 'from 1 to 2'", "attn explain: --heads：必须是整数，而不是“from 1 to 2”\n"},
           std::pair{"explain hi --score 'above 0, and finite'",
                     "attn explain: --score 没有“above 0, and finite”；可用的有 scaled_dot, dot, general, additive\n"},
       })
    EXPECT_EQ(attn_says(arguments, kChinese).err, says) << arguments;
}

TEST(ChineseCommand, WordsAfterTwoDashesAreNoOptions) {
  EXPECT_EQ(attn_says("explain --heads 0 -- --lang zh", "LC_ALL=C").err, attn_says("explain hi --heads 0").err);
  EXPECT_EQ(attn_says("explain --heads 0 -- --lang=en", kChinese).err, attn_says("explain hi --heads 0", kChinese).err);
}

}  // namespace
}  // namespace attn::testing
