// src/cli/chinese_errors.cc: lists the errors in Chinese; of two patterns that a text matches the first counts.
#include "cli/chinese.h"

namespace attn::cli {
namespace {

constexpr Translation kErrors[] = {
    // the command line
    {"there is no option {}; did you mean {}?", "没有选项 {0}；是不是 {1}？"},
    {"there is no option {} (attn {}--help lists them)", "没有选项 {0}（attn {1}--help 会列出所有选项）"},
    {"there is no verb \"{}\"; did you mean {}?", "没有命令“{0}”；是不是 {1}？"},
    {"there is no verb \"{}\"; there are {}", "没有命令“{0}”；可用的有 {1}"},
    {"which verb? {} or completion (attn --help)", "要哪个命令？{0} 或 completion（见 attn --help）"},
    {"\"{}\" is one argument too many (attn {} --help)", "“{0}”是多余的参数（见 attn {1} --help）"},
    {"\"{}\" is one argument too many", "“{0}”是多余的参数"},
    {"{} needs a value", "{0} 需要一个值"},
    {"{} is given more than once", "{0} 给了不止一次"},
    {"Could not convert: {} = {}", "{0} 不能是“{1}”"},
    {"{} has no \"{}\"; did you mean {}? there are {}", "{0} 没有“{1}”；是不是 {2}？可用的有 {3}"},
    {"{} has no \"{}\"; there are {}", "{0} 没有“{1}”；可用的有 {2}"},
    {"{}: must be a whole number of at most 18 digits, not \"{}\"", "{0}：必须是不超过 18 位的整数，而不是“{1}”"},
    {"{}: must be a whole number, not \"{}\"", "{0}：必须是整数，而不是“{1}”"},
    {"{}: must be a number, not \"{}\"", "{0}：必须是数，而不是“{1}”"},
    {"{}: must name a file, or be - for stdout, not \"\"", "{0}：必须是文件名，或用 - 表示标准输出，不能为空"},
    {"{} - and --json do not go together: both write to stdout", "{0} - 与 --json 不能同时用：两者都写到标准输出"},
    {"not enough memory", "内存不足"},
    // attn convert
    {"a model and a new folder or GGUF file are needed, as in: attn convert model.gguf model",
     "需要模型和新的文件夹或 GGUF 文件，例如：attn convert model.gguf model"},
    {"--dtype is for a folder; a GGUF file has --type", "--dtype 用于文件夹；GGUF 文件用 --type"},
    {"--type is for a GGUF file; a folder has --dtype", "--type 用于 GGUF 文件；文件夹用 --dtype"},
    {"convert: {} is there already; give another name", "convert：{0} 已存在；请换一个名字"},
    {"convert: {} holds a model already ({}); give another folder", "convert：{0} 中已有模型（{1}）；请给另一个文件夹"},
    // attn explain
    {"a text is missing, as in: attn explain {}", "缺少文本，例如：attn explain {0}"},
    {"{} and --weights do not go together: the matrices say it", "{0} 与 --weights 不能同时用：矩阵已经决定了它"},
    {"{} and --model do not go together: the model says it", "{0} 与 --model 不能同时用：模型已经决定了它"},
    {"--svg - and --html - both go to stdout", "--svg - 与 --html - 都写到标准输出"},
    {"--html and --model do not go together: the page has no such folder; drop its files onto the page",
     "--html 与 --model 不能同时用：网页里没有这个文件夹；可以把其中的文件拖到网页上"},
    {"--html and --weights do not go together: the page draws its own matrices; drop the file onto it",
     "--html 与 --weights 不能同时用：网页自己生成矩阵；可以把文件拖到网页上"},
    {"--model takes one text", "--model 只接受一个文本"},
    {"{} needs --model", "{0} 要和 --model 一起用"},
    {"- is given twice; stdin can be read once (-- before a text that is a dash)",
     "- 给了两次；标准输入只能读一次（文本就是 - 时，前面写 --）"},
    // the library's explain
    {"explain: the text has no token; give at least one word", "explain：文本里没有词元；至少要有一个词"},
    {"explain: the text has {} tokens; at most {} can be shown", "explain：文本有 {0} 个词元；最多能显示 {1} 个"},
    {"explain: the text has {} tokens; the model's context holds {}",
     "explain：文本有 {0} 个词元；模型的上下文最多容纳 {1} 个"},
    {"explain: the text has the token {}, whose id is {}; the model knows ids below {} (vocab_size in config.json)",
     "explain：文本里的词元 {0} 编号是 {1}；模型只认识小于 {2} 的编号（config.json 的 vocab_size）"},
    {"explain: {} sentences, {} heads, {} by {} tokens are {} pairs; at most {} can be shown",
     "explain：{0} 个句子、{1} 个头、{2} × {3} 个词元，共 {4} 对；最多能显示 {5} 对"},
    {"explain: learned_query and to do not go together: one learned vector asks, or one text",
     "explain：learned_query 与 to 不能同时用：查询要么是一个可学习的向量，要么来自文本"},
    {"explain: query {} is not there; the tokens are 0 to {}, or -{} to -1 from the end",
     "explain：没有第 {0} 个查询；词元从 0 到 {1}，或从末尾数 -{2} 到 -1"},
    {"explain: there is no step \"{}\"; there are {}", "explain：没有步骤“{0}”；可用的有 {1}"},
    {"explain: the text needs {} ids, one of them for PAD; the embedding has {} rows",
     "explain：文本需要 {0} 个编号（其中一个给 PAD）；词嵌入只有 {1} 行"},
    {"explain: the text needs {} ids; the embedding has {} rows", "explain：文本需要 {0} 个编号；词嵌入只有 {1} 行"},
    {"explain: rotary positions turn pairs of numbers; dk is {}, it must be even",
     "explain：旋转位置编码成对地旋转数；dk 是 {0}，必须是偶数"},
    {"explain: sink: the value {} cannot be kept in {}", "explain：sink：{1} 存不下 {0} 这个值"},
    {"explain: {} is {}; it must be {}", "explain：{0} 是 {1}；必须{2*}"},
    {"explain: {} has shape {}; it must be {} to match {}", "explain：{0} 的形状是 {1}；要与 {3} 相配，必须是 {2}"},
    {"explain: {} has no {}; it has {}", "explain：{0} 里没有 {1}；其中有 {2}"},
    {"explain: {} has no {}", "explain：{0} 里没有 {1}"},
    {"explain: {} is a file of NumPy's; a folder of w_query.npy, w_key.npy and w_value.npy is needed, or a safetensors "
     "file",
     "explain：{0} 是单个 NumPy 文件；需要一个装有 w_query.npy、w_key.npy、w_value.npy 的文件夹，或一个 safetensors "
     "文件"},
    {"explain: {} does not say how {} rows stand against {} keys; it needs an alignment, top_left or bottom_right, as "
     "in "
     "{}",
     "explain：{0} 没有说明 {1} 行查询与 {2} 个键如何对齐；要写明 top_left 或 bottom_right，例如 {3}"},
    {"attention: row {} of weights is {}; it must be below the number of rows, {}, and at least {}",
     "attention：要返回的第 {0} 行是 {1}；必须小于行数 {2}，且不小于 {3}"},
    {"attention: top_k of weights is {}; it must be from 1 to the number of keys, {}",
     "attention：要返回的 top_k 是 {0}；必须在 1 到键的个数 {1} 之间"},
    {"split: byte {} at offset {} is not UTF-8", "文本偏移 {1} 处的字节 {0} 不是 UTF-8"},
    // attn generate, attn chat
    {"{} and {} do not go together", "{0} 与 {1} 不能同时用"},
    {"--stream is for one text", "--stream 只用于一个文本"},
    {"--log-probabilities needs --json", "--log-probabilities 要和 --json 一起用"},
    {"--draft-tokens needs --draft", "--draft-tokens 要和 --draft 一起用"},
    {"--sinks needs --window", "--sinks 要和 --window 一起用"},
    {"generate: the draft {} has other tokens: {} is \"{}\" there and \"{}\" in the model; both must have the same",
     "generate：--draft 的模型 {0} 词元不同：编号 {1} 在其中是“{2}”，在模型中是“{3}”；两者必须相同"},
    {"chat: {} has no chat template; give the format: {}", "chat：{0} 没有对话模板；请给出格式：{1}"},
    {"chat: the chat template of {} is that of {}; attn knows {}, which may be given as the format",
     "chat：{0} 的对话模板属于 {1}；attn 只认识 {2}，可以用 --format 给出"},
    {"chat: the chat template of {} is unknown; attn knows {}, which may be given as the format",
     "chat：不认识 {0} 的对话模板；attn 只认识 {1}，可以用 --format 给出"},
    {"{} is {}; attn knows {}, which may be given as the format", "{0}：{1}；attn 只认识 {2}，可以用 --format 给出"},
    {"chat: the message has {} tokens with what stands around it; the context holds {}",
     "chat：这条消息连同格式有 {0} 个词元；上下文最多容纳 {1} 个"},
    {"({}: Ctrl-C stops an answer, Ctrl-D ends the chat)", "（{0}：Ctrl-C 停止回答，Ctrl-D 结束对话）"},
    {"(Ctrl-D ends the chat; or Ctrl-C again)", "（Ctrl-D 结束对话，或再按一次 Ctrl-C）"},
    {"(the answer was cut off after {} tokens)", "（回答在 {0} 个词元后被截断）"},
    {"(the answer was cut off after 1 token)", "（回答在 1 个词元后被截断）"},
    {"(the context is full: the oldest message was left out)", "（上下文已满：最早的一条消息已略去）"},
    // masks, expressions, weights
    {"{} \"{}\": column {}, at the end: {}", "{0} “{1}”：第 {2} 列，末尾：{3*}"},
    {"{} \"{}\": column {}, at \"{}\": {}", "{0} “{1}”：第 {2} 列，“{3}”处：{4*}"},
    {"{}: \"{}\"; rows take their numbers, rows(0, 5), top_k how many, top_k(3), the others nothing",
     "{0}：“{1}”；rows 要行号，如 rows(0, 5)；top_k 要个数，如 top_k(3)；其余不带参数"},
    {"{}: \"{}\"; it must be softmax, softmax1, sigmoid, sigmoid(BIAS), sparsemax, entmax15, relu_squared or "
     "relu_squared(SCALE)",
     "{0}：“{1}”；必须是 softmax、softmax1、sigmoid、sigmoid(偏置)、sparsemax、entmax15、relu_squared 或 "
     "relu_squared(系数)"},
    {"{}: {}: a number must be a whole number, not \"{}\"", "{0}：{1} 里的数必须是整数，而不是“{2}”"},
    {"Weights::parse: there is no \"{}\"; there are {}", "Weights::parse：没有“{0}”；可用的有 {1}"},
    // the options of the page and of explain_options
    {"explain_options: there is no option {}; there are {}", "explain_options：没有选项 {0}；可用的有 {1}"},
    {"explain_options: {} is {}; {} is needed", "explain_options：{0} 是 {1*}；需要{2*}"},
    {"explain_options: a JSON object is needed", "explain_options：需要 JSON 对象"},
    // files
    {"{}: cannot be read: {}", "{0}：无法读取：{1*}"},
    {"{}: cannot be read", "{0}：无法读取"},
    {"stdout: cannot write: {}", "标准输出：无法写入：{0*}"},
    {"{}: cannot write: {}", "{0}：无法写入：{1*}"},
    {"{}: cannot write", "{0}：无法写入"},
    {"{}: No such file or directory", "{0}：没有这个文件或文件夹"},
    {"{}: Is a directory", "{0}：是一个文件夹"},
    {"{}: Permission denied", "{0}：没有权限"},
};

/// The texts in the marked holes of the errors above.
constexpr Translation kReasons[] = {
    {"above 0 and finite, or 0 for none", "大于 0 且有限，或为 0（表示不用）"},
    {"above 0, and finite", "大于 0 且有限"},
    {"a mask was expected: {}", "这里应是掩码：{0}"},
    {"an operator, & or |, was expected", "这里应是运算符 & 或 |"},
    {"a closing parenthesis was expected", "这里应是右括号"},
    {"a closing ) was expected", "这里应是右括号"},
    {"a comma and the keys to the right were expected", "这里应是逗号和右边的键数"},
    {"a whole number of at least {} was expected", "这里应是不小于 {0} 的整数"},
    {"one of {}, a number, {} was expected", "这里应是 {0}、一个数，或 {1} 之一"},
    {"there is no tensor {}; none is given", "没有张量 {0}；一个也没有给"},
    {"{} takes 1 operand, not {}", "{0} 需要 1 个操作数，而不是 {1} 个"},
    {"{} takes {} operands, not {}", "{0} 需要 {1} 个操作数，而不是 {2} 个"},
    {"a whole number from 0 to 2^64 - 1", " 0 到 2^64 - 1 的整数"},
    {"a whole number", "整数"},
    {"a number", "数"},
    {"a text", "文本"},
    {"true or false", " true 或 false"},
    {"a list of names", "名字的列表"},
    {"a list", "列表"},
    {"an object", "对象"},
    {"one of {}", "以下之一：{0}"},
    {"0 or more, and finite", "不小于 0 且有限"},
    {"0 or more", "不小于 0"},
    {"0 (all) or more", "为 0（全部）或更大"},
    {"at least {}", "至少为 {0}"},
    {"above 0, at most 1", "大于 0 且不超过 1"},
    {"from {} to {}", "在 {0} 到 {1} 之间"},
    {"0 to {}", "在 0 到 {0} 之间"},
    {"1 to {}", "在 1 到 {0} 之间"},
};

}  // namespace

std::span<const Translation> chinese_errors() { return kErrors; }
std::span<const Translation> chinese_reasons() { return kReasons; }

}  // namespace attn::cli
