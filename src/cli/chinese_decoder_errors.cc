// src/cli/chinese_decoder_errors.cc: lists the errors of encoder-decoders in Chinese.
#include "cli/chinese.h"

namespace attn::cli {
namespace {

constexpr Translation kDecoderErrors[] = {
    {"--gradients is for language models, not for an encoder-decoder", "--gradients 用于语言模型，不用于编码器-解码器"},
    {"{} is for encoder-decoders, such as T5, BART, Marian or NLLB",
     "{0} 用于编码器-解码器，如 T5、BART、Marian 或 NLLB"},
    {"{} is for language models, not for an encoder-decoder", "{0} 用于语言模型，不用于编码器-解码器"},
    {"--prompt is missing: an encoder-decoder answers a text", "缺少 --prompt：编码器-解码器要回答一段文本"},
    {"EncoderDecoderConfig: {} is {}; it must be from {} to {}",
     "EncoderDecoderConfig：{0} 是 {1}；必须在 {2} 到 {3} 之间"},
    {"EncoderDecoderConfig: {} is {}; it must divide width ({})",
     "EncoderDecoderConfig：{0} 是 {1}；必须整除 width（{2}）"},
    {"EncoderDecoderConfig: scaled_embedding is true; T5's embeddings are not scaled",
     "EncoderDecoderConfig：scaled_embedding 为 true；T5 的嵌入不缩放"},
    {"EncoderDecoderConfig: scaled_output is true; only T5's last rows are scaled",
     "EncoderDecoderConfig：scaled_output 为 true；只有 T5 缩放最后的行"},
    {"EncoderDecoderConfig: width is {}; M2M-100's must be at least 4",
     "EncoderDecoderConfig：width 是 {0}；M2M-100 的必须不小于 4"},
    {"EncoderDecoderConfig: decoder_vocab_size is {}; with a shared table it must be vocab_size ({})",
     "EncoderDecoderConfig：decoder_vocab_size 是 {0}；共用词表时必须等于 vocab_size（{1}）"},
    {"EncoderDecoderConfig: relative_buckets is {}; it must be a multiple of 4",
     "EncoderDecoderConfig：relative_buckets 是 {0}；必须是 4 的倍数"},
    {"EncoderDecoderConfig: relative_distance is {}; it must be above {}, half of relative_buckets",
     "EncoderDecoderConfig：relative_distance 是 {0}；必须大于 {1}，即 relative_buckets 的一半"},
    {"EncoderDecoderConfig: norm_eps is {}; it must be above 0, and finite",
     "EncoderDecoderConfig：norm_eps 是 {0}；必须大于 0 且有限"},
    {"EncoderDecoderConfig: dropout is {}; it must be from 0 to below 1",
     "EncoderDecoderConfig：dropout 是 {0}；必须从 0 起、小于 1"},
    {"EncoderDecoder::load: dtype is {}; it must be f32, f64, bf16 or f16",
     "EncoderDecoder::load：dtype 是 {0}；必须是 f32、f64、bf16 或 f16"},
    {"{}: {}: final_logits_bias is {} {}, not [1, {}]", "{0}：{1}：final_logits_bias 是 {2} {3}，应为 [1, {4}]"},
    {"explain: the {} text has no token; give at least one word", "explain：文本没有词元；至少给一个词"},
    {"explain: the {} text has {} tokens; the model reads at most {}", "explain：文本有 {1} 个词元；模型最多读 {2} 个"},
    {"explain: the {} text has {} tokens; at most {} can be shown", "explain：文本有 {1} 个词元；最多能显示 {2} 个"},
    {"explain: the start token is not set; generation_config.json or config.json names it (decoder_start_token_id)",
     "explain：没有起始词元；它写在 generation_config.json 或 config.json 里（decoder_start_token_id）"},
    {"{}: it must name the id of each piece", "{0}：必须写明每个词片的编号"},
    {"{}: the id of \"{}\" is {}; it must be from 0 to {}", "{0}：“{1}”的编号是 {2}；必须在 0 到 {3} 之间"},
    {"{}: there is no piece {}", "{0}：没有词片 {1}"},
    {"translate: {} is {}; it must be at least {}", "translate：{0} 是 {1}；必须不小于 {2}"},
    {"translate: {} is {}; the model says ids from 0 to {}", "translate：{0} 是 {1}；模型给出的编号在 0 到 {2} 之间"},
    {"translate: beams is {}, returned {}; at most {} are possible",
     "translate：beams 是 {0}，返回 {1} 个；最多 {2} 个"},
    {"translate: tokens is {}; it must be at most {}", "translate：tokens 是 {0}；必须不大于 {1}"},
    {"translate: length_penalty is {}; it must be finite", "translate：length_penalty 是 {0}；必须有限"},
    {"translate: returned is {}; it must be at most beams, {}", "translate：返回 {0} 个；不能多于 beams，即 {1} 个"},
    {"translate: returned is {}; one beam without a temperature gives one text",
     "translate：返回 {0} 个；只有一条束且没有 temperature 时只有一个文本"},
    {"translate: beams and a temperature do not go together; one beam samples",
     "translate：beams 与 temperature 不能同时使用；抽样只用一条束"},
    {"translate: start is not set; generation_config.json or config.json names it (decoder_start_token_id)",
     "translate：没有起始词元；它写在 generation_config.json 或 config.json 里（decoder_start_token_id）"},
    {"translate: source {} has no token", "translate：第 {0} 个源文本没有词元"},
    {"translate: source {} has the id {}; the model reads ids from 0 to {}",
     "translate：第 {0} 个源文本有编号 {1}；模型读的编号在 0 到 {2} 之间"},
    {"translate: text {} has {} tokens; the model reads at most {}",
     "translate：第 {0} 个文本有 {1} 个词元；模型最多读 {2} 个"},
    {"translate: text {} has no token", "translate：第 {0} 个文本没有词元"},
    {"translate: text {}: {}", "translate：第 {0} 个文本：{1*}"},
    {"Translator: the model has no languages to choose; a multilingual Marian model has the target's in the text "
     "(\">>fra<< ...\")",
     "Translator：这个模型没有可选的语言；多语言的 Marian 模型把目标语言写在文本里（“>>fra<< ...”）"},
    {"Translator: there is no language \"{}\"; there are {}{}", "Translator：没有语言“{0}”；有 {1}{2*}"},
    {"{}: M2M-100's sentencepiece.bpe.model and vocab.json are not read; a tokenizer.json is needed",
     "{0}：不读 M2M-100 的 sentencepiece.bpe.model 和 vocab.json；需要 tokenizer.json"},
    {"{}: there is no tokenizer.json, which {} needs for texts; "
     "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes it",
     "{0}：没有 tokenizer.json，{1} 的文本需要它；"
     "transformers 的 AutoTokenizer.from_pretrained(folder).save_pretrained(folder) 会写出它"},
    {"{}: its model_type is {}; it must be 1, Unigram", "{0}：model_type 是 {1}；必须是 1，即 Unigram"},
    {"{}: byte_fallback is not supported", "{0}：不支持 byte_fallback"},
    {"{}: precompiled_charsmap is damaged: {}", "{0}：precompiled_charsmap 已损坏：{1}"},
    {"{}: it has no pieces", "{0}：没有词片"},
    {"{}: it is no SentencePiece model: {}", "{0}：不是 SentencePiece 模型：{1*}"},
};

/// The texts in the marked holes of the errors.
constexpr Translation kDecoderReasons[] = {
    {"generation_config.json or config.json names it (decoder_start_token_id)",
     "它写在 generation_config.json 或 config.json 里（decoder_start_token_id）"},
    {" and {} more", "，还有 {0} 种"},
    {"an encoder-decoder is t5, mt5, bart, mbart, marian, m2m_100 or pegasus",
     "编码器-解码器是 t5、mt5、bart、mbart、marian、m2m_100 或 pegasus"},
    {"it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh, also behind gated-",
     "必须是 gelu、gelu_new、gelu_pytorch_tanh、relu、silu 或 tanh，前面可以加 gated-"},
    {"it must be one id", "必须是一个编号"},
    {"it must be a list of lists of ids", "必须是由编号列表组成的列表"},
    {"it must be true, false or \"never\"", "必须是 true、false 或 \"never\""},
    {"this is not supported", "不支持"},
    {"it must be from 0 to 65536", "必须在 0 到 65536 之间"},
    {"it ends inside of a number", "在一个数的中间结束"},
    {"a number has more than 64 bits", "一个数超过 64 位"},
    {"a field is longer than the file", "一个字段比文件还长"},
    {"a field has the wire type {}", "一个字段的类型编号是 {0}"},
    {"a piece has the type {}", "一个词片的类型是 {0}"},
    {"a piece is empty", "一个词片是空的"},
    {"a piece has {} bytes; at most {} are read", "一个词片有 {0} 个字节；最多读 {1} 个"},
    {"a piece is not UTF-8", "一个词片不是 UTF-8"},
    {"a score is not a finite number", "一个分数不是有限的数"},
    {"it has more than {} pieces", "词片多于 {0} 个"},
    {"it has no pieces", "没有词片"},
};

}  // namespace

std::span<const Translation> chinese_decoder_errors() { return kDecoderErrors; }
std::span<const Translation> chinese_decoder_reasons() { return kDecoderReasons; }

}  // namespace attn::cli
