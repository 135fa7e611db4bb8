// src/cli/chinese_encoder_errors.cc: lists the errors of encoders of texts, attn embed and attn rank in Chinese.
#include "cli/chinese.h"

namespace attn::cli {
namespace {

constexpr Translation kEncoderErrors[] = {
    {"EncoderConfig: {} is {}; it must be from {} to {}", "EncoderConfig：{0} 是 {1}；必须在 {2} 到 {3} 之间"},
    {"EncoderConfig: {} is {}; it must be above 0, and finite", "EncoderConfig：{0} 是 {1}；必须大于 0 且有限"},
    {"EncoderConfig: heads is {}; it must divide width ({})", "EncoderConfig：heads 是 {0}；必须整除 width（{1}）"},
    {"EncoderConfig: positions is {}; it must be above padding_id + 1 ({})",
     "EncoderConfig：positions 是 {0}；必须大于 padding_id + 1（{1}）"},
    {"EncoderConfig: width / heads is {}; rotary positions need an even one",
     "EncoderConfig：width / heads 是 {0}；旋转位置编码需要偶数"},
    {"TextEncoder::load: dtype is {}; it must be f32, f64, bf16 or f16",
     "TextEncoder::load：dtype 是 {0}；必须是 f32、f64、bf16 或 f16"},
    {"TextEncoder: the model's folder has no tokenizer.json; it is needed for texts",
     "TextEncoder：模型的文件夹里没有 tokenizer.json；处理文本需要它"},
    {"TextEncoder: the model has no prompt \"{}\"; {}", "TextEncoder：模型没有提示“{0}”；{1*}"},
    {"TextEncoder: {} {} has a token whose id is {}; the model knows ids below {} (vocab_size in config.json)",
     "TextEncoder：第 {1} 个文本里有编号为 {2} 的词元；模型只认识小于 {3} 的编号（config.json 的 vocab_size）"},
    {"TextEncoder: {} {} has no token", "TextEncoder：第 {1} 个文本没有词元"},
    {"TextEncoder: {} {}: {}", "TextEncoder：第 {1} 个文本：{2*}"},
    // attn embed, attn rank
    {"a model is missing: the folder of an encoder, as transformers or sentence-transformers stores it, or a GGUF file",
     "缺少模型：文本编码器的文件夹（transformers 或 sentence-transformers 格式），或 GGUF 文件"},
    {"{} is a file; an encoder is a folder, as transformers or sentence-transformers stores it, or a GGUF file",
     "{0} 是文件；编码器是一个文件夹（transformers 或 sentence-transformers 格式），或 GGUF 文件"},
    {"convert: {} holds an encoder of texts; attn writes the folder of one as a GGUF file, and nothing else",
     "convert：{0} 是文本编码器；attn 只能把编码器的文件夹写成 GGUF 文件"},
    {"convert: the encoder {}", "convert：编码器{0*}"},
    {"{}: {} must have two sizes", "{0}：{1} 必须是二维"},
    {"{}: {} belongs to a model of scores; of GGUF files attn reads encoders that give vectors",
     "{0}：{1} 属于打分的模型；GGUF 文件中 attn 只读给出向量的编码器"},
    {"a file of lines is missing; - is stdin", "缺少文本行的文件；- 表示标准输入"},
    {"a query is missing, as in: attn rank MODEL \"a question\" lines.txt",
     "缺少查询文本，例如：attn rank MODEL \"一个问题\" lines.txt"},
    {"--out is missing: the file for the vectors, as in: --out vectors.npy",
     "缺少 --out：存放向量的文件，例如：--out vectors.npy"},
    {"--out is -; vectors need a file (./- has that name)", "--out 是 -；向量需要一个文件（./- 才是这个名字）"},
    {"--batch is {}; it must be at least 1", "--batch 是 {0}；必须不小于 1"},
    {"--top is {}; it must be at least 1", "--top 是 {0}；必须不小于 1"},
    {"embed: {} gives scores of pairs, no vectors; attn rank uses it",
     "embed：{0} 给出文本对的分数，不给向量；attn rank 可以用它"},
    {"rank: {} gives a pair {} scores; it must give one", "rank：{0} 给每个文本对 {1} 个分数；必须只给一个"},
    {"rank: the query: {}", "rank：查询文本：{0*}"},
    {"{} is there and is no file; vectors need a file", "{0} 已存在，但不是普通文件；向量需要一个文件"},
    {"{}: another attn embed is at work there", "{0}：另一个 attn embed 正在写它"},
    {"{} is not the beginning of a file of vectors of {} numbers; remove it to begin anew",
     "{0} 不是未写完的、每行 {1} 个数的向量文件；删除它即可重新开始"},
    {"{} holds the vectors of {} other lines; remove it to begin anew",
     "{0} 里是另外 {1} 行文本的向量；删除它即可重新开始"},
    {"{} holds vectors of another model, prompt or dtype; remove it to begin anew",
     "{0} 里是另一个模型、提示或类型的向量；删除它即可重新开始"},
    {"{} holds vectors of other lines, or of another model, prompt or dtype; remove it to begin anew",
     "{0} 里是另外的文本行的向量，或另一个模型、提示或类型的向量；删除它即可重新开始"},
    {"{}: {} rows do not fit into the header of a NumPy file", "{0}：{1} 行写不进 NumPy 文件头"},
    {"TextEncoder::load: the activation of scores is {}; it must be Identity or Sigmoid",
     "TextEncoder::load：分数的激活函数是 {0}；必须是 Identity 或 Sigmoid"},
    {"{}: there is no Transformer", "{0}：没有 Transformer"},
    {"{}: there is no Pooling", "{0}：没有 Pooling"},
};

/// The texts in the marked holes of the errors.
constexpr Translation kEncoderReasons[] = {
    {"it has none", "它没有任何提示"},
    {"it has {}", "它有 {0}"},
    {"an encoder of texts is bert, roberta, xlm-roberta, camembert, mpnet, distilbert or modernbert",
     "文本编码器是 bert、roberta、xlm-roberta、camembert、mpnet、distilbert 或 modernbert"},
    {"it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh",
     "必须是 gelu、gelu_new、gelu_pytorch_tanh、relu、silu 或 tanh"},
    {"it must be absolute", "必须是 absolute"},
    {"it must be default", "必须是 default"},
    {"it must be null", "必须是 null"},
    {"it must be cls or mean", "必须是 cls 或 mean"},
    {"it must be Tanh or Identity", "必须是 Tanh 或 Identity"},
    {"it must be at least 1", "必须不小于 1"},
    {"it must be at least 2", "必须不小于 2"},
    {"it must be null, or at least 1", "必须是 null，或不小于 1"},
    {"it must name full_attention or sliding_attention for each of num_hidden_layers, {}",
     "必须为 num_hidden_layers 的每一层（共 {0} 层）写明 full_attention 或 sliding_attention"},
    {"it must name a text each", "每一项都必须是文本"},
    {"it must be one of prompts", "必须是 prompts 之一"},
    {"it must be a folder inside of the model's", "必须是模型文件夹之内的文件夹"},
    {"the order is Transformer, Pooling, Dense, Normalize", "顺序是 Transformer、Pooling、Dense、Normalize"},
    {"a module is a Transformer, Pooling, Dense or Normalize", "模块只能是 Transformer、Pooling、Dense 或 Normalize"},
    {"a vector has {} numbers", "一个向量有 {0} 个数"},
    {"it must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken",
     "必须是 cls、max、mean、mean_sqrt_len_tokens、weightedmean 或 lasttoken"},
};

}  // namespace

std::span<const Translation> chinese_encoder_errors() { return kEncoderErrors; }
std::span<const Translation> chinese_encoder_reasons() { return kEncoderReasons; }

}  // namespace attn::cli
